"""The view of costs, in a real browser."""

import json
from datetime import timedelta

import pytest
import sqlalchemy as sa

from backburner import Budget
from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import Options
from backburner.stores.tables import account_samples, accounts

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN, BOB = Owner("gulls", "ann"), Owner("gulls", "bob")
TERN, SKUA = Owner("terns", "tim"), Owner("skuas", "sue")
RAIL = Owner("rails", "ray")
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
    assert f"…{dearest[-8:]}" in rows[0]
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


def a_long_window(server):
    """Return the length of a window that is half over, and when it began."""
    now = server.backburner.engine.now()
    per = now * 2 // 21
    return timedelta(milliseconds=per // 1000 * 1000), now // per * per


async def use(dashboard, name, tokens, *, owner=TERN, settled=True):
    """Use tokens of a budget without a job, or hold them."""
    budgets = dashboard.server.backburner.engine.budgets
    day = timedelta(days=1)
    held = await budgets.reserve(tokens, owner=owner, lasts=day, id=f"hold_{name}")
    if settled:
        await budgets.settle(held.id, tokens)


async def insert_sample(dashboard, window, per, slot, settled):
    """Store a sample of the account of the tenant terns, as upkeep does."""
    length = per // timedelta(milliseconds=48)
    mine = accounts.c.scope == "tenant", accounts.c.value == "terns"
    number = sa.select(accounts.c.seq).where(*mine).scalar_subquery()
    sample = {
        "account": number,
        "slot": slot,
        "at": window + slot * length,
        "settled": settled,
        "held": 0,
        "ceiling": 100_000,
        "window_end": window + 48 * length,
    }
    store = dashboard.server.backburner.engine.store
    insert = account_samples.insert().values(sample)
    await store.transact(lambda tx: tx.connection.execute(insert))


async def test_a_budget_burns_down(dashboard):
    per, window = a_long_window(dashboard.server)
    budgets = dashboard.server.backburner.engine.budgets
    await budgets.put(Budget("tenant", tokens=100_000, per=per, of="terns"))
    await use(dashboard, "a", 30_000)
    await use(dashboard, "b", 10_000, settled=False)
    await dashboard.log_in("tenant-operator", tenant="terns")
    await dashboard.visit("cost")
    await dashboard.shows("held 10,000", ".burn")
    await dashboard.shows("settled 30,000", ".burn")
    await dashboard.shows("lasts until the window ends", ".burn .ends")
    # Samples began a moment ago, for example with an upgrade: they show no rate yet.
    await insert_sample(dashboard, window, per, 23, 30_000)
    await dashboard.visit("cost")
    await dashboard.tab.until("document.querySelector('.curve .drawn')")
    await dashboard.shows("lasts until the window ends", ".burn .ends")
    # With older samples, the rate is that of the last quarter: use began late.
    await insert_sample(dashboard, window, per, 21, 5_000)
    await insert_sample(dashboard, window, per, 22, 20_000)
    await dashboard.visit("cost")
    await dashboard.shows("will be used up in", ".burn .ends.bad-text")
    points = "document.querySelector('.curve .%s').getAttribute('points').split(' ')"
    drawn = await dashboard.tab.evaluate(points % "drawn")
    ahead = await dashboard.tab.evaluate(points % "ahead")
    assert ["0.0,0.0", "416.7,0.0", "437.5,5.0", "458.3,20.0"] == drawn[:4]
    assert "40.0" == drawn[-1].partition(",")[2]
    assert drawn[-1] == ahead[0]
    assert "100.0" == ahead[-1].partition(",")[2], (
        "the projection ends with nothing left"
    )
    assert 500 < float(ahead[-1].partition(",")[0]) < 1000
    rows = "[...document.querySelectorAll('.burn tbody tr')].map(row => row.innerText)"
    rows = [row.split("\t")[1:] for row in await dashboard.tab.evaluate(rows)]
    assert [
        ["95,000", "5,000", "0", "100,000"],
        ["80,000", "20,000", "0", "100,000"],
        ["70,000", "30,000", "0", "100,000"],
        ["60,000", "30,000", "10,000", "100,000"],
    ] == rows
    await dashboard.check("cost over time")


async def test_a_budget_with_nothing_left_is_shown_as_used_up(dashboard):
    per, _ = a_long_window(dashboard.server)
    budgets = dashboard.server.backburner.engine.budgets
    await budgets.put(Budget("tenant", tokens=900, per=per, of="skuas"))
    await use(dashboard, "c", 600, owner=SKUA)
    await use(dashboard, "d", 300, owner=SKUA, settled=False)
    await dashboard.log_in("tenant-operator", tenant="skuas")
    await dashboard.visit("cost")
    await dashboard.shows("used up; the next window starts", ".burn .ends.bad-text")
    await dashboard.shows("100 %", ".burn .used")
    await dashboard.shows("free 0", ".burn")
    dashboard.check_quiet()


async def test_an_ended_window_is_left_without_an_event(dashboard):
    """*Before: it stayed until the next event, as if the budget were still used up.*"""
    per, _ = a_long_window(dashboard.server)
    budgets = dashboard.server.backburner.engine.budgets
    await budgets.put(Budget("tenant", tokens=800, per=per, of="rails"))
    await use(dashboard, "e", 800, owner=RAIL)
    reads = []

    async def shorten(route):
        """Answer at first as if the window ended soon, then as if it had ended."""
        answer = await route.fetch()
        found = await answer.json()
        reads.append(found["items"])
        for account in found["items"]:
            account["window_end"] = end
        await route.fulfill(json=found if len(reads) == 1 else {**found, "items": []})

    await dashboard.log_in("tenant-operator", tenant="rails")
    soon = "new Date(Date.now() + 5000).toISOString()"
    end = await dashboard.tab.evaluate(soon)
    await dashboard.tab.page.route("**/v1/budgets", shorten)
    await dashboard.visit("cost")
    await dashboard.shows("used up", ".burn")
    await dashboard.shows("No budget has been used in its current window.")
    assert 2 == len(reads), "it is read once more"
    await dashboard.tab.page.unroute_all()
    dashboard.check_quiet()


async def test_of_many_budgets_those_with_the_least_left_are_drawn(dashboard):
    per, _ = a_long_window(dashboard.server)
    budgets = dashboard.server.backburner.engine.budgets
    for place in range(5):
        tenant = f"wren{place}"
        await budgets.put(Budget("tenant", tokens=1_000, per=per, of=tenant))
        owner = Owner(tenant, "1")
        await use(dashboard, f"wren{place}", 999 - place, owner=owner)
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("cost")
    await dashboard.tab.until("document.querySelector('.curve .drawn')")
    curves = "document.querySelectorAll('.burn .curve').length"
    assert 3 == await dashboard.tab.evaluate(curves)
    await dashboard.click("Show burn-down")
    await dashboard.tab.until(f"{curves} === 4")
    await dashboard.check("cost of many budgets")
    dashboard.check_quiet()


async def test_a_user_sees_the_history_of_their_own_budgets_only(dashboard):
    budgets = dashboard.server.backburner.engine.budgets
    every = Budget("user", tokens=90_000)
    await budgets.put(every)
    await spend(dashboard, ANN)
    await spend(dashboard, BOB)
    await dashboard.log_in("user", tenant="gulls", user="ann")
    await dashboard.visit("cost")
    await dashboard.tab.until("document.querySelector('.curve .drawn')")
    shown = await dashboard.tab.evaluate("document.body.innerText")
    assert "user gulls/ann" in shown
    assert "gulls/bob" not in shown
    assert "Set a budget" not in shown, "it needs budgets:admin"
    assert "Limits in force" not in shown
    read = [url for url in dashboard.tab.requests if "/v1/budgets/history" in url]
    assert any("of=gulls%2Fann" in url for url in read)
    assert not any("bob" in url for url in read)
    dashboard.check_quiet()
    await budgets.drop(every)


async def enter(dashboard, field, text):
    await dashboard.tab.page.fill(f"dialog [name={field}]", text)


async def test_a_budget_is_set_changed_and_deleted(dashboard):
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("cost")
    await dashboard.click("Set a budget")
    await enter(dashboard, "of", "gulls/eve")
    await dashboard.tab.page.select_option("dialog [name=scope]", "user")
    await enter(dashboard, "limit", "500")
    await dashboard.check("budget form")
    await dashboard.click("Set the budget", "dialog button")
    mine = "[aria-label='Limits in force'] tr:has(bdi[title='gulls/eve'])"
    await dashboard.shows("500 tokens", mine)
    await dashboard.shows("no use yet", mine)
    await dashboard.shows("a day", mine)
    focused = await dashboard.tab.evaluate("document.activeElement.innerText")
    assert "Set a budget" == focused
    await dashboard.check("cost with limits")
    await dashboard.click("Change", f"{mine} button")
    await enter(dashboard, "limit", "700")
    await dashboard.click("Set the budget", "dialog button")
    await dashboard.shows("700 tokens", mine)
    await dashboard.click("Delete", f"{mine} button")
    await dashboard.click("Delete the budget", "dialog button")
    await dashboard.tab.until(f"!document.querySelector({json.dumps(mine)})")
    store = dashboard.server.backburner.engine.store
    entries = await store.audited("gulls", before=None, limit=3)
    acts = [entry.action for entry in entries]
    assert ["budget.dropped", "budget.set", "budget.set"] == acts
    dashboard.check_quiet()


async def test_an_unknown_period_shows_the_last_day(dashboard):
    await dashboard.log_in("user", tenant="gulls", user="ann")
    await dashboard.visit("cost?since=constructor")
    await dashboard.shows("cost, last 24 hours", ".tile")
    await dashboard.tab.press("/")
    await dashboard.tab.until("location.pathname === '/ui/jobs'")
    dashboard.check_quiet()


# The last one of this file: Chromium reports the 422 on the console.
async def test_a_refused_budget_says_why_and_keeps_what_was_entered(dashboard):
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("cost")
    await dashboard.click("Set a budget")
    await enter(dashboard, "limit", "99999999999999999999")
    await dashboard.click("Set the budget", "dialog button")
    await dashboard.shows("tokens:", "dialog [role=alert]")
    limit = "document.querySelector('dialog [name=limit]').value"
    assert "99999999999999999999" == await dashboard.tab.evaluate(limit)
