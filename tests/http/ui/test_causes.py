"""Incidents and questions that change while they are shown, in a real browser."""

import json

import pytest

from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import Options
from tests.http.ui.test_lanes import ask

pytestmark = pytest.mark.asyncio(loop_scope="module")

ZOE = Owner("wrens", "zoe")


async def test_a_cause_says_of_how_many_jobs_its_impact_is_known(dashboard):
    engine = dashboard.server.backburner.engine

    async def run(name, value):
        made = await engine.submit(name, value, Options(owner=ZOE))
        await engine.wait(made.id, ZOE, timeout=60)

    async def less(route):
        answer = await route.fetch()
        found = await answer.json()
        for group in found["items"]:
            group["impact"]["jobs"] = 1  # as if there were more than are examined
        await route.fulfill(json=found)

    await run("ui.flaky", {})
    await run("ui.flaky", {})
    await dashboard.log_in(tenant="wrens")
    await dashboard.tab.page.route("**/v1/dead-letters?**", less)
    await dashboard.visit("incidents")
    await dashboard.shows("Of PROVIDER_DOWN, 1 of 2 jobs.")
    await dashboard.check("incidents in part")
    read = [url for url in dashboard.tab.requests if "/v1/dead-letters?limit" in url]
    for _ in range(3):
        await run("demo.echo", {})
    await run("ui.flaky", {})
    await dashboard.shows("Of PROVIDER_DOWN, 1 of 3 jobs.")
    now = [url for url in dashboard.tab.requests if "/v1/dead-letters?limit" in url]
    assert 1 == len(now) - len(read), "only the failure is a reason to read again"
    await dashboard.tab.page.unroute_all()
    dashboard.check_quiet()


async def test_a_question_that_is_asked_again_can_be_answered_again(dashboard):
    job = await ask(dashboard, "wrens", question="Send it?")
    await dashboard.log_in(tenant="wrens")
    await dashboard.visit("questions")
    await dashboard.shows("Send it?", ".question")
    _, key = await dashboard.key("tenant-administrator", "wrens")
    listed = await dashboard.server.client.get(
        "/v1/questions", headers=dashboard.server.shown(key)
    )
    again = listed.json()
    again["items"][0]["asked_at"] = "2099-01-01T00:00:00Z"

    async def ask_again(route):
        # As if the job were retried, and asked under the same name.
        await route.fulfill(json=again)

    await dashboard.tab.page.route("**/v1/questions?**", ask_again)
    await dashboard.click("Send it", ".reply button")
    await dashboard.click("Send the answer", "dialog button")
    await dashboard.server.backburner.engine.wait(
        job, Owner("wrens", "ann"), timeout=60
    )
    await dashboard.tab.until("document.querySelector('.reply button:not(:disabled)')")
    await dashboard.shows("Hold it back", ".reply")
    await dashboard.tab.page.unroute_all()
    dashboard.check_quiet()


async def test_an_administrator_cancels_the_flow_of_another_user(dashboard):
    steps = [{"name": "first", "capability": "ui.ask", "input": {"question": "Go?"}}]
    made = await dashboard.submit(
        "/v1/flows", {"steps": steps}, role="user", tenant="wrens", user="zoe"
    )
    await dashboard.log_in("tenant-operator", tenant="wrens")
    await dashboard.visit(f"flows/{made['id']}")
    await dashboard.shows("Flow of 1 step", "h1")
    shown = await dashboard.tab.evaluate(
        "[...document.querySelectorAll('.head button')].map(one => one.innerText)"
    )
    assert "Cancel" not in shown, "the role may not cancel"
    await dashboard.tab.press("?")
    await dashboard.shows("Keyboard shortcuts", "dialog")
    await dashboard.tab.press("Escape")
    await dashboard.log_in("tenant-administrator", tenant="wrens")
    await dashboard.visit(f"flows/{made['id']}")
    await dashboard.click("Cancel", ".head button")
    await dashboard.click("Cancel the flow", "dialog button")
    await dashboard.shows("cancelled", "h1")
    flow = await dashboard.server.backburner.engine.flows.wait(
        made["id"], ZOE, timeout=60
    )
    assert "cancelled" == flow.state, json.dumps(made)
    dashboard.check_quiet()


async def test_a_search_for_deliveries_that_has_not_ended_goes_on(dashboard):
    asked = []

    async def walk(route):
        """Answer like a search that has found nothing in the newest jobs."""
        cursor = route.request.url.partition("cursor=")[2].partition("&")[0]
        asked.append(cursor)
        onward = f"c{int(cursor[1:] or 0) + 1}"
        await route.fulfill(json={"items": [], "next_cursor": onward})

    await dashboard.log_in("user", tenant="wrens", user="zoe")
    await dashboard.tab.page.route("**/v1/jobs?capability=webhook.deliver**", walk)
    await dashboard.visit("webhooks")
    await dashboard.shows("Among the jobs that were searched, no delivery has failed")
    # The page may read the list once more from its start.
    assert {"", *(f"c{n}" for n in range(1, 10))} == set(asked)
    async with dashboard.tab.page.expect_request("**cursor=c10&**"):
        await dashboard.click("Next page")
    read = "document.querySelector('.pager button:last-child:not(:disabled)')"
    await dashboard.tab.until(read)
    dashboard.check_quiet()
    await dashboard.tab.open("about:blank")  # it would ask the server for "c10"
    await dashboard.tab.page.unroute_all()
