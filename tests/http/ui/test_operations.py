"""Overview, incidents and fleet, in a real browser."""

import json
from datetime import timedelta

import pytest

from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import Options
from tests.http.ui.conftest import broken

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN = Owner("default", "ann")


async def fail(engine):
    """Let 45 jobs fail, of two causes."""
    values = [*[{}] * 30, *[{"poison": True}] * 15]
    wanted = [("ui.flaky", value, Options(owner=ANN)) for value in values]
    for made in await engine.submit_many(wanted):
        await engine.wait(made.id, ANN, timeout=60)


async def go_to_row(dashboard, text):
    """Go to a row of the table by the keyboard."""
    is_there = f"document.querySelector('tr.current')?.innerText.includes('{text}')"
    while not await dashboard.tab.evaluate(is_there):
        await dashboard.tab.press("j")


async def test_a_staged_retry_stops_by_itself_and_clears_what_is_fixed(dashboard):
    engine = dashboard.server.backburner.engine
    await fail(engine)
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("overview")
    await dashboard.shows("PROVIDER_DOWN", ".attention")
    await dashboard.shows("45", ".tile.alarm b")
    await dashboard.tab.until("document.querySelector('.chart rect.bad')")
    await dashboard.shows("Cost per minute", ".charts")
    await dashboard.check("overview")
    broken["cause"] = False
    await dashboard.visit("incidents")
    await dashboard.shows("POISON", "table")
    await dashboard.shows("The provider does not answer.", ".cause")
    rows = "[...document.querySelectorAll('tbody tr')].map(row => row.innerText)"
    users = f"{rows}.every(row => /\\b(30|15)\\s+1\\s+\\$0\\b/.test(row))"
    await dashboard.tab.until(users)
    await dashboard.check("incidents")
    for code, told in (("POISON", "failed again"), ("PROVIDER_DOWN", "30 retried")):
        await dashboard.visit("incidents")
        await dashboard.shows(code, "table")
        await go_to_row(dashboard, code)
        await dashboard.tab.press("r")
        await dashboard.click("Start the staged retry", "dialog button")
        await dashboard.tab.until("location.pathname.startsWith('/ui/jobs/job_')")
        await dashboard.shows("succeeded", "h1")
        await dashboard.click("Output", "[role=tab]")
        await dashboard.shows(told if code == "POISON" else '"stopped": null', "#panel")
    left = {group.code: group.size for group in await engine.failures(ANN)}
    assert {"POISON": 15} == left
    dashboard.check_quiet()


async def test_a_figure_that_may_be_a_second_old_is_read_once_more(dashboard):
    engine = dashboard.server.backburner.engine
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("overview")
    await dashboard.shows("scheduled", ".tiles")
    await dashboard.tab.evaluate("""(() => {
      const read = fetch
      window.ages = []
      window.fetch = (path, options) => {
        if (String(path).endsWith('count?state=scheduled'))
          ages.push(options.headers['Cache-Control'])
        return read(path, options)
      }
    })()""")
    later = Options(owner=ANN, delay=timedelta(days=1))
    await engine.submit_many([("ui.flaky", {}, later)])  # one event, and no other
    # The first read, and those after a reconnect, have no such header.
    await dashboard.tab.until("ages.filter(age => age === 'max-age=1').length > 1")
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


async def enter_a_schedule(dashboard):
    """Fill the form of a schedule; what was entered stays while the page reads anew."""
    for name, text in (
        ("name", "nightly"),
        ("capability", "demo.echo"),
        ("cron", "0 3 * * *"),
    ):
        # Not by the mouse: the list of capabilities may be over the next field.
        field = f"document.querySelector('dialog [name={name}]')"
        await dashboard.tab.evaluate(f"{field}.focus()")
        await dashboard.tab.type(text)
        assert text == await dashboard.tab.evaluate(f"{field}.value")
    # A job that ends makes the page behind it read everything again.
    ended = await dashboard.server.backburner.engine.submit(
        "demo.echo", {}, Options(owner=ANN)
    )
    async with dashboard.tab.page.expect_response("**/v1/workers"):
        await dashboard.server.backburner.engine.wait(ended.id, ANN, timeout=60)
    assert "demo.echo" == await dashboard.tab.evaluate(
        "document.querySelector('dialog [name=capability]').value"
    )


async def test_a_worker_is_drained_and_a_schedule_saved_and_run(dashboard):
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("fleet")
    await dashboard.click("Drain", "td button")
    await dashboard.click("Drain the worker", "dialog button")
    await dashboard.shows("draining", "[aria-label=Workers]")
    await dashboard.click("Resume", "[aria-label=Workers] button")
    await dashboard.tab.until(
        "!document.querySelector('[aria-label=Workers] .waiting')"
    )
    await dashboard.click("New schedule")
    await dashboard.tab.until("document.querySelector('dialog[open]')")
    await enter_a_schedule(dashboard)
    await dashboard.check("schedule form")
    await dashboard.click("Save", "dialog button")
    await dashboard.shows("nightly", "[aria-label=Schedules]")
    await dashboard.click("Pause", "[aria-label=Schedules] button")
    await dashboard.shows("paused", "[aria-label=Schedules]")
    await dashboard.check("fleet with a schedule")
    await dashboard.click("Run now", "[aria-label=Schedules] button")
    await dashboard.click("Show the job", ".toast a")
    await dashboard.shows("schedule:nightly", ".facts")
    entries = await dashboard.server.backburner.engine.store.audited(
        "default", before=None, limit=5
    )
    assert [
        "schedule.run",
        "schedule.paused",
        "schedule.set",
        "worker.resumed",
        "worker.drained",
    ] == [entry.action for entry in entries]
    await dashboard.log_in("platform-operator", tenant="default")
    await dashboard.visit("fleet")
    await dashboard.shows("Run now", "[aria-label=Schedules]")
    shown = await dashboard.tab.evaluate("document.body.innerText")
    assert "New schedule" not in shown, "it needs jobs:write"


NIGHTLY = {"capability": "demo.echo", "cron": "0 3 * * *"}


async def test_a_schedule_is_changed_and_its_input_keeps_its_digits(dashboard):
    """*Before: large numbers were rounded, also if only the time was changed.*"""
    value = '{"id": 12345678901234567890, "share": 1.0, "words": ["1.0", "two"]}'
    _, key = await dashboard.key("platform-administrator", "default")
    answer = await dashboard.server.client.put(
        "/v1/schedules/digits",
        json={**NIGHTLY, "input": json.loads(value)},
        headers=dashboard.server.shown(key),
    )
    assert 200 == answer.status_code, answer.text
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("fleet")
    row = "[aria-label=Schedules] tr:has(bdi[title=digits])"
    await dashboard.click("Change", f"{row} button")
    field = dashboard.tab.page.locator("dialog [name=input]")
    assert json.loads(value) == json.loads(await field.input_value())
    await dashboard.tab.page.fill("dialog [name=cron]", "0 4 * * *")
    await dashboard.click("Save", "dialog button")
    await dashboard.shows("at 04:00", row)
    engine = dashboard.server.backburner.engine
    _, schedules = await engine.store.schedules()
    [saved] = [one for one in schedules if one.name == "digits"]
    assert value.replace(" ", "") == saved.input
    await field.wait_for(state="detached")
    await dashboard.click("Change", f"{row} button")
    await field.fill("{")
    await dashboard.click("Save", "dialog button")
    await dashboard.shows("not valid JSON", "dialog [role=alert]")
    await dashboard.click("Close", "dialog button")
    await engine.store.delete_schedule("digits")
    dashboard.check_quiet()


async def test_a_job_is_given_another_priority_and_started(dashboard):
    engine = dashboard.server.backburner.engine
    await dashboard.log_in("user", user="ann", tenant="default")
    later = Options(owner=ANN, delay=timedelta(days=1))
    made = await engine.submit("demo.echo", {}, later)
    await dashboard.visit(f"jobs/{made.id}")
    await dashboard.shows("scheduled", "h1")
    await dashboard.click("Change")
    await dashboard.check("job change form")
    await dashboard.tab.click("dialog [name=priority]")
    await dashboard.tab.press("ArrowUp")
    # What was entered stays while the page behind it changes.
    since = "document.querySelector('.facts time').innerText"
    shown = await dashboard.tab.evaluate(since)
    await dashboard.tab.until(f"{since} !== {json.dumps(shown)}")
    await dashboard.click("Save", "dialog button")
    await dashboard.shows("Priority\n1", ".facts")
    await dashboard.click("Change")
    await dashboard.click("Start now", "dialog button")
    await dashboard.shows("succeeded", "h1")
    dashboard.check_quiet()


async def test_a_webhook_that_failed_is_replayed(dashboard):
    client = dashboard.server.client
    _, key = await dashboard.key("user", tenant="default", user="ann")
    shown = dashboard.server.shown(key)
    callback = {"url": "https://hooks.example/heron"}
    endpoint = await client.post("/v1/endpoints", json=callback, headers=shown)
    disabled = f"/v1/endpoints/{endpoint.json()['id']}/disable"
    assert 200 == (await client.post(disabled, headers=shown)).status_code
    body = {"capability": "demo.echo", "input": {}, "callback": callback}
    made = await client.post("/v1/jobs", json=body, headers=shown)
    assert 202 == made.status_code, made.text
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("fleet")
    await dashboard.shows(made.json()["id"], "[aria-label='Webhook deliveries']")
    await dashboard.check("fleet deliveries")
    await dashboard.click("Replay")
    await dashboard.shows("The webhook is sent again", ".toast")
    entries = await dashboard.server.backburner.engine.store.audited(
        "default", before=None, limit=9
    )
    assert "dead_letter.retried" in [entry.action for entry in entries]
    await dashboard.log_in("user", tenant="default", user="ann")
    await dashboard.click("Webhooks", "nav a")
    await dashboard.shows("hooks.example/heron", "[aria-label=Endpoints]")
    await dashboard.shows(made.json()["id"], "[aria-label='Webhook deliveries']")
    await dashboard.check("webhooks")
    await dashboard.shows("disabled", "[aria-label=Endpoints]")
    await dashboard.click("Enable", "td button")
    await dashboard.shows("enabled", "[aria-label=Endpoints]")
    dashboard.check_quiet()
