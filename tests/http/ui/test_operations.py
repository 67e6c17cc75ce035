"""Overview, incidents and fleet, in a real browser."""

import pytest

from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import Options
from tests.http.ui.conftest import broken

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN = Owner("default", "ann")


async def test_a_staged_retry_stops_by_itself_and_clears_what_is_fixed(dashboard):
    engine = dashboard.server.backburner.engine
    values = [*[{}] * 30, *[{"poison": True}] * 15]
    wanted = [("ui.flaky", value, Options(owner=ANN)) for value in values]
    for made in await engine.submit_many(wanted):
        await engine.wait(made.id, ANN, timeout=60)
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("overview")
    await dashboard.shows("PROVIDER_DOWN", ".attention")
    await dashboard.shows("45", ".tile.alarm b")
    await dashboard.check("overview")
    broken["cause"] = False
    await dashboard.visit("incidents")
    await dashboard.shows("POISON", "table")
    await dashboard.check("incidents")
    for code, told in (("POISON", "failed again"), ("PROVIDER_DOWN", "30 retried")):
        await dashboard.visit("incidents")
        await dashboard.shows(code, "table")
        await dashboard.tab.evaluate(
            "[...document.querySelectorAll('tbody tr')].find(row => row.innerText"
            f".includes('{code}')).querySelector('button').classList.add('aimed')"
        )
        await dashboard.tab.click("button.aimed")
        await dashboard.click("Start the staged retry", "dialog button")
        await dashboard.tab.until("location.pathname.startsWith('/ui/jobs/job_')")
        await dashboard.shows("succeeded", "h1")
        await dashboard.click("Output", "[role=tab]")
        await dashboard.shows(told if code == "POISON" else '"stopped": null', "#panel")
    left = {group.code: group.size for group in await engine.failures(ANN)}
    assert {"POISON": 15} == left
    dashboard.check_quiet()


async def test_a_queue_is_paused_and_resumed(dashboard):
    await dashboard.log_in("platform-operator", tenant="default")
    await dashboard.visit("fleet")
    await dashboard.shows("backburner.bulk", "table")
    await dashboard.check("fleet")
    await dashboard.tab.evaluate(
        "[...document.querySelectorAll('tbody tr')].find(row => row.innerText"
        ".startsWith('demo')).querySelector('button').classList.add('aimed')"
    )
    await dashboard.tab.click("button.aimed")
    await dashboard.click("Pause the queue", "dialog button")
    await dashboard.shows("paused", "table")
    await dashboard.click("Resume", "td button")
    await dashboard.tab.until("!document.querySelector('td .waiting')")
    entries = await dashboard.server.backburner.engine.store.audited(
        "default", before=None, limit=2
    )
    assert ["queue.resumed", "queue.paused"] == [entry.action for entry in entries]
    await dashboard.log_in("user", user="ann")
    assert "Fleet" not in await dashboard.tab.evaluate("document.body.innerText")
