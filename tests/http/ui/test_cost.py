"""The view of costs, in a real browser."""

from datetime import timedelta

import pytest

from backburner import Budget
from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import Options

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN, BOB = Owner("gulls", "ann"), Owner("gulls", "bob")
ROWS = "[...document.querySelectorAll('.frame tbody tr')].map(row => row.innerText)"


async def spend(dashboard, owner, **value):
    engine = dashboard.server.backburner.engine
    made = await engine.submit("ui.dear", value, Options(owner=owner))
    await engine.wait(made.id, owner, timeout=60)
    return made.id


async def test_what_is_dear_and_what_failed_is_shown(dashboard):
    budgets = dashboard.server.backburner.engine.budgets
    week = timedelta(days=7)
    await budgets.put(Budget("tenant", tokens=46_000, per=week, of="gulls"))
    await spend(dashboard, ANN)
    dearest = await spend(dashboard, BOB, tokens=20_000, fails=9)
    await dashboard.log_in("tenant-operator", tenant="gulls")
    await dashboard.tab.press("g")
    await dashboard.tab.press("c")
    await dashboard.shows("of this for failed attempts: 85 %", ".tile.alarm")
    await dashboard.shows("settled 23,000", ".burn")
    await dashboard.shows("free 23,000", ".burn")
    await dashboard.shows("50 %", ".burn .used")
    fill = "getComputedStyle(document.querySelector('.stack .free')).fill"
    assert "none" == await dashboard.tab.evaluate(fill), "what is free is not filled"
    rows = await dashboard.tab.evaluate(ROWS)
    assert dearest in rows[0]
    assert "bob" in rows[0]
    await dashboard.check("cost")
    await dashboard.tab.press("j")
    await dashboard.tab.until("location.search === '?since=7d'")
    await dashboard.shows("cost, last 7 days", ".tile")
    await dashboard.click("ui.dear", ".frame a")
    await dashboard.shows("UNUSABLE", ".notice.bad")
    await dashboard.shows("20,000 + 500", "[aria-label='Model calls']")
    await dashboard.check("job with a model call")


async def test_a_user_sees_only_their_own_costs(dashboard):
    await dashboard.log_in("user", tenant="gulls", user="ann")
    await dashboard.visit("cost")
    await dashboard.tab.until(f"{ROWS}.length === 1")
    assert "bob" not in await dashboard.tab.evaluate("document.body.innerText")
    await dashboard.log_in("user", tenant="gulls", user="eve")
    await dashboard.visit("cost")
    await dashboard.shows("No model was called", ".empty")
    await dashboard.check("cost empty")


async def test_an_unknown_period_shows_the_last_day(dashboard):
    await dashboard.log_in("user", tenant="gulls", user="ann")
    await dashboard.visit("cost?since=constructor")
    await dashboard.shows("cost, last 24 hours", ".tile")
    await dashboard.tab.press("/")
    await dashboard.tab.until("location.pathname === '/ui/jobs'")
    dashboard.check_quiet()
