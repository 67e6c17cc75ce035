"""
Each view of the dashboard with a filled store, on both databases.

A person does the main actions of each view in a real browser. Each view is quiet on the
console, asks nobody else and has no violation that axe finds, in both themes, at 1280
and 360 pixels. `BACKBURNER_TEST_SCREENSHOTS` names a folder for what it looks like.
Every run has 2,000 jobs in the store, those of full size 100,000.
"""

import asyncio
from datetime import timedelta

import pytest

from backburner.clock import SystemClock
from backburner.domain.jobs.job import JobState, Owner, Tenant
from backburner.engine.submit.submission import Options
from backburner.ports.store.maintenance import JobFilter
from bench.filling import LONG, fill, steps, working
from tests import homes
from tests.http.ui.conftest import a_dashboard, broken

ANN = Owner("default", "1")
LARGE = "job_17"
"""The job of the filled store that has 20,000 events."""
ROWS = "document.querySelectorAll('tbody tr').length"


class Person:
    """Somebody at the pages, and a store that they look at."""

    def __init__(self, dashboard, store, jobs):
        self.dashboard, self.tab, self._store = dashboard, dashboard.tab, store
        self.engine = dashboard.server.backburner.engine
        self.jobs = jobs
        for name in ("click", "shows", "visit", "check_quiet"):
            setattr(self, name, getattr(dashboard, name))

    async def check(self, name):
        await self.dashboard.check(f"{self._store} {name}")

    async def failed(self):
        """Return how many failed jobs are there, as the pages write it."""
        where = JobFilter(owner=Tenant("default"), state=JobState.FAILED)
        return f"{await self.engine.store.count(where, most=10_000):,}"

    async def made(self, capability, value, **more):
        """Submit a job of the person; return its id when it has ended."""
        made = await self.engine.submit(capability, value, Options(owner=ANN, **more))
        await self.engine.wait(made.id, ANN, timeout=60)
        return made.id

    async def audited(self, *actions):
        """Check that these are the newest entries of the audit log, the last first."""
        found = await self.engine.store.audited(
            "default", before=None, limit=len(actions)
        )
        assert list(actions) == [entry.action for entry in found]

    async def click_in_row(self, text):
        """Click the first button in the row that has a text."""
        row = (
            "[...document.querySelectorAll('tbody tr')]"
            f".find(row => row.innerText.includes({text!r}))?.querySelector('button')"
        )
        await self.tab.evaluate(
            "document.querySelector('.aimed')?.classList.remove('aimed')"
        )
        await self.tab.until(f"{row}?.classList.add('aimed') === undefined && {row}")
        await self.tab.click("button.aimed")

    async def enter(self, selector, text):
        """Replace what a field has."""
        field = f"document.querySelector({selector!r})"
        await self.tab.until(f"{field}?.select() === undefined && {field}")
        await self.tab.evaluate(f"{field}.focus()")
        await self.tab.type(text)


@pytest.mark.parametrize("store_url", homes.STORES, indirect=True)
@pytest.mark.parametrize(
    "jobs", [2_000, pytest.param(100_000, marks=pytest.mark.chaos)]
)
async def test_the_main_actions_of_each_view_with_a_filled_store(
    store_url,
    jobs,
    axe,  # noqa: ARG001 - it may skip
):
    await asyncio.to_thread(fill, store_url, jobs, SystemClock().now())
    with working(store_url):
        await do_all(store_url, jobs)


async def do_all(store_url, jobs):
    async with a_dashboard(store_url) as dashboard:
        person = Person(dashboard, store_url.partition(":")[0], jobs)
        await dashboard.log_in("platform-administrator", tenant="default")
        for act in (
            see_the_overview,
            cancel_jobs,
            page_through_events,
            see_a_blocked_job,
            retry_fork_and_cancel_a_job,
            retry_a_flow,
            answer_a_question,
            retry_an_incident,
            see_lanes,
            choose_a_period,
            pause_a_queue,
            drain_a_worker,
            replay_a_webhook,
            try_a_capability,
            make_a_key,
        ):
            await act(person)
            dashboard.check_quiet()


async def see_the_overview(person):
    await person.visit("overview")
    await person.shows(await person.failed(), ".tile.alarm b")
    await person.shows("jobs of", ".attention")
    await person.check("overview")
    await person.click("Incidents", ".attention a")
    await person.shows("causes", ".head")


async def cancel_jobs(person):
    later = Options(owner=ANN, delay=timedelta(days=1))
    await person.engine.submit_many([("demo.echo", {}, later)] * 60)
    await person.visit("jobs")
    await person.tab.until(f"{ROWS} === 50")
    await person.check("jobs")
    await person.click("failed", ".chips button")
    await person.shows(f"{await person.failed()} match")
    await person.tab.until("document.querySelector('tbody .state.failed')")
    await person.tab.click("thead input")
    await person.click("Select all")
    await person.shows("matching jobs", ".bulk")
    await person.check("jobs all selected")
    await person.tab.press("/")
    await person.enter("#query", "user:1 state:scheduled")
    await person.tab.press("Enter")
    await person.shows("60 match")
    await person.tab.until("document.querySelector('tbody .state.scheduled')")
    await person.tab.click("thead input")
    await person.click("Select all 60 matching")
    await person.click("Cancel", ".bulk button.danger")
    await person.click("Cancel", "dialog button.danger")
    await person.shows("60 cancelled, 0 skipped")
    await person.check("job bulk cancel")


async def page_through_events(person):
    await person.visit(f"jobs/{LARGE}")
    await person.click("Events", "[role=tab]")
    await person.shows(f"200 of {LONG:,} events", "#panel")
    await person.click("Next page", "#panel button")
    await person.shows(f"400 of {LONG:,} events", "#panel")
    await person.click("Last page", "#panel button")
    await person.shows(f"{LONG:,} of {LONG:,} events", "#panel")
    assert 200 == await person.tab.evaluate(
        "document.querySelectorAll('#panel tbody tr').length"
    )
    await person.check("job events")
    await person.click("Timeline", "[role=tab]")
    await person.shows("Attempt 1", ".timeline")
    await person.check("job")


async def see_a_blocked_job(person):
    await person.visit("jobs?state=blocked")
    await person.shows("blocked", "tbody")
    await person.visit("jobs/job_1999")
    await person.shows("It waits for earlier steps of its flow.", ".now")
    await person.check("job blocked")


async def retry_fork_and_cancel_a_job(person):
    await person.visit(f"jobs/{await person.made('ui.flaky', {})}")
    await person.shows("failed", "h1")
    broken["cause"] = False
    await person.click("Retry")
    await person.shows("succeeded", "h1")
    broken["cause"] = True
    value = {"title": "herons", "reader": "Ann"}
    job = await person.made("ui.steps", value)
    await person.visit(f"jobs/{job}")
    await person.click("Fork")
    await person.tab.until("document.querySelector('dialog select')")
    await person.click("Fork", "dialog button")
    await person.shows(job, ".facts")
    await person.shows("succeeded", "h1")
    later = Options(owner=ANN, delay=timedelta(days=1))
    job = await person.engine.submit("demo.echo", {}, later)
    await person.visit(f"jobs/{job.id}")
    await person.click("Cancel", "button.danger")
    await person.click("Cancel the job", "dialog button")
    await person.shows("cancelled", "h1")
    await person.audited("job.cancelled", "job.forked", "dead_letter.retried")


async def retry_a_flow(person):
    dashboard = person.dashboard
    await person.visit("flows")
    await person.tab.until(f"{ROWS} === 50")
    await person.check("flows")
    await person.visit("flows/flow_1")
    await person.tab.until("document.querySelectorAll('.node').length > 1")
    await person.tab.until(f"{ROWS} === 50")
    await person.shows(f"{steps(person.jobs):,}", "main")
    await person.check("large flow")
    await person.visit("batches")
    await person.tab.until(f"{ROWS} === 50")
    await person.check("batches")
    parts = [
        {"name": "fetch", "capability": "demo.echo", "input": {}},
        {"name": "call", "capability": "ui.flaky", "needs": ["fetch"], "input": {}},
        {"name": "tell", "capability": "demo.echo", "needs": ["call"], "input": {}},
    ]
    made = await dashboard.submit("/v1/flows", {"steps": parts}, tenant="default")
    await person.engine.flows.wait(made["id"], ANN, timeout=60)
    await person.visit(f"flows/{made['id']}")
    await person.shows("failed", "h1")
    broken["cause"] = False
    await person.click("Retry 1 failed")
    await person.click("Retry 1 failed", "dialog button")
    await person.shows("succeeded", "h1")
    await person.check("flow")
    broken["cause"] = True


async def answer_a_question(person):
    engine = person.engine
    asked = {"question": "Send the invoice to ACME?"}
    made = await engine.submit("ui.ask", asked, Options(owner=ANN))
    async for event in engine.events(await engine.find(made.id, ANN), after=0):
        if event.type == "job.waiting":
            break
    await person.visit("questions")
    await person.shows("Send the invoice to ACME?", ".question")
    await person.check("questions")
    await person.tab.click(".question:first-child .reply button")
    await person.click("Send the answer", "dialog button")
    await person.shows("You answered Send it", ".question")
    await engine.wait(made.id, ANN, timeout=60)


async def retry_an_incident(person):
    engine = person.engine
    for made in await engine.submit_many([("ui.flaky", {}, Options(owner=ANN))] * 12):
        await engine.wait(made.id, ANN, timeout=60)
    broken["cause"] = False
    await person.visit("incidents")
    await person.shows("PROVIDER_DOWN", "tbody")
    await person.shows("E6", "tbody")
    await person.check("incidents")
    await person.click_in_row("PROVIDER_DOWN")
    await person.click("Start the staged retry", "dialog button")
    await person.tab.until("location.pathname.startsWith('/ui/jobs/job_')")
    await person.shows("succeeded", "h1")
    await person.click("Output", "[role=tab]")
    await person.shows('"stopped": null', "#panel")


async def see_lanes(person):
    await person.visit("lanes")
    await person.tab.until(f"{ROWS} > 50")
    await person.tab.press("j")
    await person.tab.until("document.querySelector('tr.current, tr[aria-current]')")
    await person.check("lanes")


async def choose_a_period(person):
    await person.visit("cost")
    await person.shows("Most expensive jobs")
    await person.check("cost")
    await person.tab.press("j")
    await person.shows("cost, last 7 days", ".tile")


async def pause_a_queue(person):
    await person.visit("fleet")
    await person.shows("demo", "[aria-label=Queues]")
    await person.check("fleet")
    await person.click_in_row("demo")
    await person.click("Pause the queue", "dialog button")
    await person.shows("paused", "[aria-label=Queues]")
    await person.click("Resume", "[aria-label=Queues] button")
    await person.tab.until("!document.querySelector('[aria-label=Queues] .waiting')")


async def drain_a_worker(person):
    [worker] = [
        one.id for one in await person.engine.store.workers() if one.id != "w_bench"
    ]
    await person.click_in_row(worker)
    await person.click("Drain the worker", "dialog button")
    await person.shows("draining", "[aria-label=Workers]")
    await person.click_in_row(worker)
    await person.tab.until("!document.querySelector('[aria-label=Workers] .waiting')")
    await person.audited("worker.resumed", "worker.drained")


async def replay_a_webhook(person):
    client = person.dashboard.server.client
    _, key = await person.dashboard.key("user", tenant="default", user="1")
    shown = person.dashboard.server.shown(key)
    callback = {"url": "https://hooks.example/heron"}
    made = await client.post("/v1/endpoints", json=callback, headers=shown)
    disabled = f"/v1/endpoints/{made.json()['id']}/disable"
    assert 200 == (await client.post(disabled, headers=shown)).status_code
    body = {"capability": "demo.echo", "input": {}, "callback": callback}
    made = await client.post("/v1/jobs", json=body, headers=shown)
    await person.click("Show 1 new", "button.fresh")
    await person.click_in_row(made.json()["id"])
    await person.shows("The webhook is sent again", ".toast")
    await person.check("fleet deliveries")
    await person.audited("dead_letter.retried")


async def try_a_capability(person):
    await person.visit("playground?capability=demo.write")
    await person.enter("#field-text", "A heron waits for a fish.")
    await person.click("Get a quote")
    await person.shows("ahead", ".quote")
    await person.click("Submit")
    await person.shows("succeeded", ".answer")
    await person.shows("A heron waits for a fish.", ".answer")
    await person.check("playground")


async def make_a_key(person):
    await person.visit("admin")
    await person.shows("of bench", "tbody")
    await person.check("keys")
    await person.click("New key")
    await person.tab.until("document.activeElement.name === 'name'")
    await person.tab.type("web shop")
    await person.click("Create the key")
    await person.tab.until("document.getElementById('made')?.value.startsWith('bb_')")
    await person.click("I have copied it")
    await person.click_in_row("web shop")
    await person.click("Revoke the key", "dialog button")
    await person.click("Audit log", ".tabs a")
    await person.shows("key.revoked", "tbody")
    await person.check("audit")
    await person.click("Configuration", ".tabs a")
    await person.shows("BACKBURNER_KEY_PEPPER")
    await person.check("configuration")
