"""Flows and batches, in a real browser."""

import pytest

from backburner.domain.jobs.job import Owner
from backburner.engine.flow import Flow
from backburner.engine.submit.submission import GroupOptions
from tests.http.ui.conftest import broken

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = '<img src=x onerror="window.isBroken=1">'
BOXES = "document.querySelectorAll('.node').length"
PARTS = [f"page {number}" for number in range(1, 25)]
STEPS = [
    {"name": "fetch", "capability": "demo.echo", "input": {}},
    {"name": HOSTILE, "capability": "demo.echo", "needs": ["fetch"], "input": {}},
    *(
        {"name": part, "capability": "ui.flaky", "needs": ["fetch"], "input": {}}
        for part in PARTS
    ),
    {"name": "join", "capability": "test.wait", "needs": PARTS, "input": {}},
    {"name": "tell", "capability": "demo.echo", "needs": ["join", HOSTILE]},
]


async def test_a_flow_is_followed_and_what_failed_is_retried(dashboard):
    sent = {"steps": STEPS, "tags": ["nightly"]}
    made = await dashboard.submit("/v1/flows", sent, tenant="owls")
    engine, owner = dashboard.server.backburner.engine, Owner("owls", "1")
    await engine.flows.wait(made["id"], owner, timeout=60)
    await dashboard.log_in(tenant="owls")
    await dashboard.visit("flows")
    await dashboard.shows("nightly", "table")
    await dashboard.check("flows")
    await dashboard.tab.press("j")
    await dashboard.tab.press("Enter")
    await dashboard.shows("failed", "h1")
    await dashboard.shows("24 failed", ".notice")
    await see_the_graph(dashboard)

    broken["cause"] = False
    await dashboard.click("Retry 24 failed")
    await dashboard.click("Retry 24 failed", "dialog button")
    for box, text in (("a.node.running", "join"), ("g.node.succeeded", "24 succ")):
        drawn = f"document.querySelector('{box}')?.textContent"
        await dashboard.tab.until(f"{drawn}.includes('{text}')")
    await dashboard.check("flow running")
    dashboard.server.release.set()
    await dashboard.shows("succeeded", "h1")
    dashboard.server.release.clear()
    await dashboard.shows("100 % ended", ".notice")
    assert 5 == await dashboard.tab.evaluate(BOXES)
    assert not await dashboard.tab.evaluate("window.isBroken")
    [entry] = await engine.store.audited("owls", before=None, limit=1)
    assert ("flow.retried", made["id"]) == (entry.action, entry.target)
    dashboard.check_quiet()


async def see_the_graph(dashboard):
    """Twenty-four pages that are alike share one box; the box lists them."""
    assert 5 == await dashboard.tab.evaluate(BOXES)
    await dashboard.tab.click("g.node")
    await dashboard.shows("24 steps of the selected box", ".chips")
    await dashboard.shows("PROVIDER_DOWN", "td .why")
    await dashboard.check("flow failed")


async def see_the_link(dashboard):
    """*Before: on a narrow screen, tags took its place.*"""
    await dashboard.tab.look(width=360)
    width = "document.querySelector('td.what a').offsetWidth"
    assert 60 < await dashboard.tab.evaluate(width)
    await dashboard.tab.look()


async def test_a_batch_shows_what_failed_and_retries_it(dashboard):
    broken["cause"] = True
    jobs = [{"capability": "demo.echo", "input": {}}] * 9
    jobs += [{"capability": "ui.flaky", "input": {}}] * 3
    flow = {"steps": [{"name": "only", "capability": "demo.echo", "input": {}}]}
    sent = {"jobs": jobs, "flows": [flow], "tags": ["import"]}
    made = await dashboard.submit("/v1/batches", sent, tenant="owls")
    engine, owner = dashboard.server.backburner.engine, Owner("owls", "1")
    await engine.batches.wait(made["id"], owner, timeout=60)
    await dashboard.log_in("tenant-operator", tenant="owls")
    await dashboard.visit("batches")
    await dashboard.shows("13 of 13, 3 failed", "table")
    await dashboard.check("batches")
    await see_the_link(dashboard)
    await dashboard.click("…", "td a")
    await dashboard.shows("PROVIDER_DOWN", "td .why")
    await dashboard.check("batch")
    # An operator may retry, and may not cancel what others own.
    labels = "[...document.querySelectorAll('button')].map(one => one.innerText.trim())"
    assert "Cancel" not in await dashboard.tab.evaluate(labels)
    broken["cause"] = False
    await dashboard.tab.press("r")
    await dashboard.click("Retry 3 failed jobs", "dialog button")
    await dashboard.shows("No job or flow of this batch has failed.")
    await dashboard.shows("13 of 13 members ended", ".notice")
    [entry] = await engine.store.audited("owls", before=None, limit=1)
    assert ("batch.retried", made["id"]) == (entry.action, entry.target)
    await dashboard.click("Jobs", "a.button")
    await dashboard.shows("13 match")
    dashboard.check_quiet()


async def test_what_can_be_done_with_a_flow_keeps_its_place_when_it_ends(dashboard):
    """*Before: "Jobs" moved to where "Cancel" had been, below the pointer.*"""
    steps = [
        {"name": "wait", "capability": "test.wait", "input": {}},
        {"name": "fail", "capability": "ui.flaky", "input": {"poison": True}},
    ]
    made = await dashboard.submit("/v1/flows", {"steps": steps}, tenant="herons")
    await dashboard.log_in(tenant="herons")
    await dashboard.visit(f"flows/{made['id']}")
    await dashboard.shows("1 failed", ".notice")
    await dashboard.shows("Cancel", ".head .actions")
    place = "document.querySelector('.head a.button').getBoundingClientRect().x"
    before = await dashboard.tab.evaluate(place)
    dashboard.server.release.set()
    await dashboard.shows("Retry 1 failed", ".head .actions")
    dashboard.server.release.clear()
    assert before == await dashboard.tab.evaluate(place)
    assert "Cancel" not in await dashboard.tab.evaluate("document.body.innerText")
    await dashboard.check("flow that has failed while it was shown")
    dashboard.check_quiet()


@pytest.mark.thorough
async def test_a_flow_of_ten_thousand_steps_stays_bounded(dashboard):
    flow = Flow()
    start = flow.add("test.wait", {})
    for number in range(4_999):
        page = flow.add("demo.echo", {"page": number}, after=[start])
        flow.add("demo.sleep", {"seconds": 0}, after=[page])
    flow.add("demo.echo", {}, after=[start])
    flows = dashboard.server.backburner.engine.flows
    [made] = await flows.submit([(flow, GroupOptions(owner=Owner("larks", "1")))])
    await dashboard.log_in(tenant="larks")
    await dashboard.visit(f"flows/{made.id}")
    await dashboard.shows("Flow of 10,000 steps", "h1")
    await dashboard.shows("50 of 10,000 steps", ".pager")
    assert 3 == await dashboard.tab.evaluate(BOXES)
    assert 2_500 > await dashboard.tab.evaluate("document.querySelectorAll('*').length")
    await dashboard.check("flow of 10,000 steps")
    await dashboard.click("Cancel", "button.danger")
    await dashboard.click("Cancel the flow", "dialog button")
    await dashboard.shows("10,000 cancelled", ".notice")
    whole = f"{dashboard.server.url}/v1/flows/{made.id}"
    assert f"{whole}/graph" in dashboard.tab.requests
    assert whole not in dashboard.tab.requests
    dashboard.check_quiet()
