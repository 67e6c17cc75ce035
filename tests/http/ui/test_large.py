"""
Each view of the dashboard with 100,000 jobs in the store, on both databases.

A person does the main action of each view in a real browser. Each view is quiet on the
console, asks nobody else and has no violation that axe finds, in both themes, at 1280
and 360 pixels. `BACKBURNER_TEST_SCREENSHOTS` names a folder for what it looks like.
"""

import asyncio
from datetime import timedelta

import pytest

from backburner.clock import SystemClock
from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import Options
from bench.filling import LONG, fill
from tests import homes
from tests.http.ui.conftest import a_dashboard, broken

pytestmark = pytest.mark.chaos

JOBS = 100_000
ANN = Owner("default", "1")
LARGE = "job_17"
"""The job of the filled store that has 20,000 events."""
ROWS = "document.querySelectorAll('tbody tr').length"


class Person:
    """Somebody at the pages, and a store that they look at."""

    def __init__(self, dashboard, store):
        self.dashboard, self.tab, self._store = dashboard, dashboard.tab, store
        for name in ("click", "shows", "visit", "check_quiet"):
            setattr(self, name, getattr(dashboard, name))

    async def check(self, name):
        await self.dashboard.check(f"{self._store} {name}")

    async def click_in_row(self, text):
        """Click the first button in the row that has a text."""
        row = (
            "[...document.querySelectorAll('tbody tr')]"
            f".find(row => row.innerText.includes({text!r}))?.querySelector('button')"
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
async def test_the_main_action_of_each_view_with_a_hundred_thousand_jobs(
    store_url,
    axe,  # noqa: ARG001 - it may skip
):
    await asyncio.to_thread(fill, store_url, JOBS, SystemClock().now())
    async with a_dashboard(store_url) as dashboard:
        person = Person(dashboard, store_url.partition(":")[0])
        await dashboard.log_in("platform-administrator", tenant="default")
        for act in (
            see_the_overview,
            cancel_jobs,
            page_through_events,
            retry_a_flow,
            answer_a_question,
            retry_an_incident,
            see_lanes,
            choose_a_period,
            pause_a_queue,
            try_a_capability,
            make_a_key,
        ):
            await act(person)
            dashboard.check_quiet()


async def see_the_overview(person):
    await person.visit("overview")
    await person.shows("2,760", ".tile.alarm b")
    await person.shows("jobs of", ".attention")
    await person.check("overview")
    await person.click("Incidents", ".attention a")
    await person.shows("causes", ".head")


async def cancel_jobs(person):
    later = Options(owner=ANN, delay=timedelta(days=1))
    engine = person.dashboard.server.backburner.engine
    await engine.submit_many([("demo.echo", {}, later)] * 60)
    await person.visit("jobs")
    await person.tab.until(f"{ROWS} === 50")
    await person.check("jobs")
    await person.click("failed", ".chips button")
    await person.shows("2,760 match")
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


async def retry_a_flow(person):
    dashboard = person.dashboard
    await person.visit("flows")
    await person.tab.until(f"{ROWS} === 50")
    await person.check("flows")
    await person.visit("flows/flow_1")
    await person.tab.until("document.querySelectorAll('.node').length > 1")
    await person.tab.until(f"{ROWS} === 50")
    await person.check("flow of 10,000")
    await person.visit("batches")
    await person.tab.until(f"{ROWS} === 50")
    await person.check("batches")
    steps = [
        {"name": "fetch", "capability": "demo.echo", "input": {}},
        {"name": "call", "capability": "ui.flaky", "needs": ["fetch"], "input": {}},
        {"name": "tell", "capability": "demo.echo", "needs": ["call"], "input": {}},
    ]
    made = await dashboard.submit("/v1/flows", {"steps": steps}, tenant="default")
    engine = dashboard.server.backburner.engine
    await engine.flows.wait(made["id"], ANN, timeout=60)
    await person.visit(f"flows/{made['id']}")
    await person.shows("failed", "h1")
    broken["cause"] = False
    await person.click("Retry 1 failed")
    await person.click("Retry 1 failed", "dialog button")
    await person.shows("succeeded", "h1")
    await person.check("flow")
    broken["cause"] = True


async def answer_a_question(person):
    engine = person.dashboard.server.backburner.engine
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
    engine = person.dashboard.server.backburner.engine
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
