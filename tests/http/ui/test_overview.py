"""Overview: what runs longest and what needs attention, in a real browser."""

import json
from datetime import timedelta

import pytest

from backburner.domain.jobs.job import Owner, rfc3339
from backburner.engine.submit.submission import Options
from backburner.ports.store.workers import WorkerInfo
from tests.http.ui.test_lanes import call

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN = Owner("default", "ann")
WORKER = WorkerInfo("w_slow", "here", 1, 8, ("none",), 0)
HEIGHT = "document.querySelector('[aria-label=\"Running jobs\"]').offsetHeight"
ROWS = "document.querySelectorAll('[aria-label=\"Running jobs\"] tbody tr').length"


async def answer_instead(tab, path, change):
    """Have the page get another answer of the API: what `change` makes of it."""

    async def handle(route):
        answer = await route.fetch()
        await route.fulfill(json=change(await answer.json()))

    await tab.page.route(path, handle)


async def test_the_longest_running_jobs_are_shown_and_nothing_moves(dashboard):
    engine = dashboard.server.backburner.engine
    await dashboard.log_in("platform-administrator", tenant="default")
    await engine.submit("demo.echo", {}, Options(owner=ANN))
    await dashboard.visit("overview")
    await dashboard.shows("No job is running.", "[aria-label='Running jobs']")
    empty = await dashboard.tab.evaluate(HEIGHT)
    wanted = [("test.wait", {}, Options(owner=ANN))] * 10
    made = await engine.submit_many(wanted)
    await dashboard.tab.until(f"{ROWS} === 8")
    assert empty == await dashboard.tab.evaluate(HEIGHT)
    worker = dashboard.server.backburner._worker.id
    link = f"a[href='/ui/jobs?state=running&worker={worker}']"
    await dashboard.shows(worker[-8:], f"[aria-label='Running jobs'] {link}")
    await dashboard.check("overview running")
    await dashboard.tab.press("j")
    await dashboard.tab.until("document.querySelector('tr.current')")
    await dashboard.tab.press("Enter")
    await dashboard.shows("test.wait", "h1")
    await dashboard.visit("overview")
    await dashboard.tab.until(f"{ROWS} === 8")
    dashboard.server.release.set()
    for job in made:
        await engine.wait(job.id, ANN, timeout=60)
    await dashboard.tab.until(f"{ROWS} === 0")
    assert empty == await dashboard.tab.evaluate(HEIGHT)
    dashboard.check_quiet()


async def test_what_needs_attention_names_lanes_and_workers(dashboard):
    store = dashboard.server.backburner.engine.store
    await store.enlist(WORKER)
    await store.drain(WORKER.id, draining=True)
    lane = "mistral/large#9f3c2a10"
    for number in range(9):
        await call(store, lane, number, worker=WORKER.id, is_refused=number == 8)
    await dashboard.log_in("platform-operator", tenant="default")

    def late(found):
        for one in found["items"]:
            one["event_loop_lag_seconds"] = 2.5
        return found

    await answer_instead(dashboard.tab, "**/v1/workers", late)
    await dashboard.visit("overview")
    await dashboard.shows(f"The lane {lane} starts no calls", ".attention")
    await dashboard.shows("w_slow claims no more jobs", ".attention")
    await dashboard.shows("w_slow was late by up to 2.5 s", ".attention")
    await dashboard.check("overview attention")
    await dashboard.tab.page.unroute_all()
    dashboard.check_quiet()


async def test_nothing_is_said_of_what_was_not_read(dashboard):
    tab = dashboard.tab

    async def fail(route):
        told = {"code": "STORE_UNAVAILABLE", "detail": "The store is away."}
        await route.fulfill(status=503, json=told)

    await dashboard.log_in("user", user="zoe")
    await dashboard.submit(
        "/v1/jobs", {"capability": "demo.echo", "input": {}}, role="user", user="zoe"
    )
    await dashboard.visit("overview")
    await dashboard.shows("Nothing needs attention", ".attend")
    shown = await tab.evaluate("document.querySelector('.attend').innerText")
    assert "no budget is nearly used up" in shown
    for unread in ("queue is paused", "lane", "worker"):
        assert unread not in shown, "the role may not read this"
    await dashboard.log_in("platform-administrator", tenant="default")
    await tab.page.route("**/v1/dead-letters**", fail)
    await tab.page.route("**/v1/activity**", fail)
    await dashboard.visit("overview")
    await dashboard.shows("Could not read: failures.", ".attend")
    shown = await tab.evaluate("document.querySelector('.attend').innerText")
    assert "no job has failed" not in shown
    await dashboard.shows("The charts are not up to date.")
    await tab.page.unroute_all()
    await dashboard.tab.press("r")
    await tab.until("!document.querySelector('.attend .bad-text[role=alert]')")
    # The next read, at most ten seconds later, covers what was missed.
    await tab.until("!document.body.innerText.includes('not up to date')")
    await tab.until("document.querySelector('.chart rect')")
    refused = [said for said in tab.messages if "503" in said[1]]
    assert refused == tab.messages
    tab.messages.clear()
    tab.errors.clear()


async def test_a_job_that_just_became_ready_has_not_waited_long(dashboard):
    engine = dashboard.server.backburner.engine
    later = Options(owner=Owner("acme", "zoe"), delay=timedelta(days=1))
    made = await engine.submit("demo.echo", {}, later)
    started = rfc3339(engine.now())

    def waits(found):
        job = found["items"][0]
        job |= {"created_at": "2020-01-01T00:00:00Z", "run_at": started}
        return {**found, "items": [{**job, "id": made.id}]}

    await dashboard.log_in("user", user="zoe")
    scheduled = f"{dashboard.server.url}/v1/jobs?state=scheduled&limit=1"

    async def handle(route):
        answer = await route.fetch(url=scheduled)
        await route.fulfill(json=waits(await answer.json()))

    await dashboard.tab.page.route("**/v1/jobs?state=queued**", handle)
    await dashboard.visit("overview")
    await dashboard.shows("Nothing needs attention", ".attend")
    tile = "[...document.querySelectorAll('.tile')].at(-1).innerText"
    shown = await dashboard.tab.until(f"!{tile}.includes('…') && {tile}")
    assert " d" not in shown, json.dumps(shown)
    await dashboard.tab.page.unroute_all()
    dashboard.check_quiet()


async def test_minutes_that_could_not_be_read_are_read_later(dashboard):
    # The last test of the file: the clock of the tab is another one from now on.
    tab = dashboard.tab
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("overview")
    await tab.until("document.querySelector('.chart')")
    # Five minutes pass, in which nothing is answered.
    asked = []

    async def note(route):
        asked.append(route.request.url)
        if len(asked) < 3:
            return await route.fulfill(status=503, json={"code": "X", "detail": "no"})
        return await route.continue_()

    await tab.page.route("**/v1/activity**", note)
    await tab.page.clock.install()
    for _ in range(3):
        await tab.page.clock.fast_forward(timedelta(minutes=2).total_seconds() * 1000)
        before = len(asked)
        await tab.page.clock.run_for(12_000)
        while len(asked) == before:
            await tab.page.wait_for_event("request")
    since = [one.partition("since=")[2] for one in asked]
    assert since[0] == since[1] == since[2], "what was not read is asked for again"
    await tab.page.unroute_all()
    tab.messages.clear()
    tab.errors.clear()
