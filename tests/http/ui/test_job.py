"""The page of one job, in a real browser."""

import asyncio
import json
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from backburner.domain.auth.access import ROLES, Role
from backburner.domain.jobs.job import Owner
from backburner.engine.access.keys import Actor, NewKey
from backburner.engine.submit.submission import Options
from tests.http.ui.conftest import HOSTILE

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN = Owner("owls", "1")
METADATA = {"order": "A-1042", "<b>" + "wide" * 15: HOSTILE * 9}
TAG = "embed:file_01a1f201-120e-7001-be37-9b5ef3e1b298"
BROKEN = """
[...document.querySelectorAll('.facts dt:not(.given)')].filter(one => {
  const range = document.createRange()
  range.selectNodeContents(one)
  return range.getClientRects().length > 1
}).map(one => one.innerText)
"""
"""The names of facts that take more than one line."""
LISTED = "[...document.querySelectorAll('.jobs tbody tr')].map(one => one.dataset.id)"
TIMELINE = "document.querySelector('.timeline').innerText"
PANEL = "document.getElementById('panel').innerText"


async def submit(dashboard, capability, value, owner=ANN, *, wait=True):
    engine = dashboard.server.backburner.engine
    options = Options(owner=owner, tags=[TAG], metadata=METADATA)
    made = await engine.submit(capability, value, options)
    if wait:
        await engine.wait(made.id, owner, timeout=60)
    return made.id


async def test_a_failed_job_is_explained_and_retried(dashboard):
    job = await submit(dashboard, "ui.hostile", {"text": "<script>alert(1)</script>"})
    await dashboard.log_in(tenant="owls")
    await dashboard.visit(f"jobs/{job}")
    await dashboard.shows("⟨202E⟩gnp.exe⟨001B⟩[31m", ".notice.bad")
    await dashboard.shows("Attempt 1", ".timeline")
    await dashboard.shows("order\nA-1042", ".facts")
    await dashboard.click("Stack trace", "summary")
    await dashboard.shows("in hostile", ".attempt")
    await dashboard.check("job failed")
    await dashboard.click("Input", "[role=tab]")
    await dashboard.shows("<script>alert(1)</script>", "#panel")
    await dashboard.click("Events", "[role=tab]")
    await dashboard.shows("job.failed", "#panel")
    await dashboard.click("Retry")
    await dashboard.shows("Attempt 1, retry 1")


async def test_a_long_tag_leaves_the_names_of_facts_on_one_line(dashboard):
    job = await submit(dashboard, "demo.echo", {})
    await dashboard.log_in(tenant="owls")
    for width in (1280, 360):
        await dashboard.tab.look(width=width)
        await dashboard.visit(f"jobs/{job}")
        await dashboard.shows(TAG[:40], ".facts")
        assert [] == await dashboard.tab.evaluate(BROKEN), width
    await dashboard.tab.look()


async def test_metadata_leads_to_the_jobs_that_have_it(dashboard):
    job = await submit(dashboard, "demo.echo", {})
    bare = Options(owner=ANN, metadata={"order": "A-1042", "none": " "})
    other = await dashboard.server.backburner.engine.submit("demo.echo", {}, bare)
    await dashboard.log_in(tenant="owls")
    for source, shown, found, missing in (
        (job, "A-1042", {job, other.id}, set()),
        (job, "<img src", {job}, {other.id}),
        (other.id, "“”", {other.id}, {job}),
    ):
        await dashboard.visit(f"jobs/{source}")
        await dashboard.click(shown, ".facts dd.given a")
        await dashboard.tab.until(f"{LISTED}.includes('{source}')")
        listed = {*await dashboard.tab.evaluate(LISTED)}
        assert (found, set()) == (listed & (found | missing), listed & missing)
    await dashboard.visit(f"jobs/{other.id}")
    await dashboard.shows("“”", ".facts")
    await dashboard.check("job with empty metadata")


async def test_why_a_job_waits_is_said(dashboard):
    _, text = await dashboard.key("platform-administrator", tenant="default")
    shown = dashboard.server.shown(text)
    paused = await dashboard.server.client.post(
        "/v1/queues/demo/pause", json={}, headers=shown
    )
    assert 200 == paused.status_code
    try:
        job = await submit(dashboard, "demo.echo", {}, wait=False)
        await dashboard.log_in(tenant="owls")
        await dashboard.visit(f"jobs/{job}")
        await dashboard.shows("The queue 'demo' is paused.", ".notice.warn")
        await dashboard.click("Cancel", "button.danger")
        await dashboard.shows("Cancel this job?", "dialog")
        await dashboard.click("Cancel the job", "dialog button")
        await dashboard.shows("cancelled", "h1")
    finally:
        await dashboard.server.client.post(
            "/v1/queues/demo/resume", json={}, headers=shown
        )
    dashboard.check_quiet()


async def test_text_is_shown_while_it_is_written(dashboard):
    await dashboard.log_in(tenant="owls")
    value = {"text": "The heron waits for a fish.", "seconds": 3}
    job = await submit(dashboard, "demo.write", value, wait=False)
    await dashboard.visit(f"jobs/{job}")
    await dashboard.shows("The heron", ".writing")
    await dashboard.shows("succeeded", "h1")
    await dashboard.click("Output", "[role=tab]")
    await dashboard.shows("The heron waits for a fish.", "#panel")


async def test_large_contents_and_many_events_are_bounded(dashboard):
    large = await submit(dashboard, "ui.large", {"size": 10_000_000})
    await dashboard.log_in(tenant="owls")
    await dashboard.visit(f"jobs/{large}")
    await dashboard.click("Output", "[role=tab]")
    await dashboard.shows("the first part is shown", "#panel")
    assert 60_000 > len(await dashboard.tab.evaluate(PANEL))
    await dashboard.click("Steps", "[role=tab]")
    await dashboard.shows('{"sum":3}', "#panel")
    requested = [
        url for url in dashboard.tab.requests if url.endswith(f"/v1/jobs/{large}")
    ]
    assert not requested, "the job is read without its contents"
    dashboard.check_quiet()


async def test_steps_and_model_calls_stand_in_the_timeline(dashboard):
    job = await submit(dashboard, "ui.steps", {"title": "A", "reader": "b", "fails": 1})
    await dashboard.log_in(tenant="owls")
    await dashboard.visit(f"jobs/{job}")
    await dashboard.shows("900 + 100 tokens", ".timeline")
    await dashboard.tab.until("document.querySelectorAll('.within').length === 4")
    told = await dashboard.tab.evaluate(TIMELINE)
    places = [told.index(part) for part in ("look up", "outline <b>", "Attempt 2")]
    assert places == sorted(places), "what is stored belongs to the first attempt"
    assert 2 == told.count("gpt-4o-mini")
    await dashboard.check("job with steps")


async def test_what_changes_no_state_ends_no_part_of_the_timeline(dashboard):
    """*Before: what followed a new priority or a new step was missing.*"""
    told = [
        ("job.queued", 0, {}),
        ("job.changed", 2, {"priority": 5}),
        ("job.started", 5, {"attempt": 1}),
        ("job.step.changed", 6, {"step": "draft", "unread": 2}),
        ("job.succeeded", 9, {}),
    ]
    events = [
        {"type": name, "at": f"2026-01-01T00:00:0{at}Z", "n": n, "data": data}
        for n, (name, at, data) in enumerate(told, start=1)
    ]
    await dashboard.log_in(tenant="owls")
    found = await dashboard.tab.evaluate(
        "import(document.querySelector('link[href*=\"timeline.js\"]').href).then("
        f"it => it.segments({json.dumps(events)}, {{state: 'succeeded'}}))"
    )

    spans = [(part["kind"], part["from"][-3:-1], part["to"][-3:-1]) for part in found]
    assert [
        ("queued", "00", "05"),
        ("note", "02", "02"),
        ("running", "05", "09"),
        ("note", "06", "06"),
    ] == spans


async def test_a_job_is_forked_from_a_step_with_another_input(dashboard):
    job = await submit(dashboard, "ui.steps", {"title": "herons", "reader": "Ann"})
    await dashboard.log_in(tenant="owls")
    await dashboard.visit(f"jobs/{job}")
    await dashboard.click("Steps", "[role=tab]")
    await dashboard.shows("About herons", "#panel")
    await dashboard.click("Fork", "#panel tr:nth-child(2) button")
    await dashboard.shows("2 outline <b>", "dialog select")
    assert "2" == await dashboard.tab.evaluate(
        "document.querySelector('dialog select').value"
    )
    await dashboard.tab.click("dialog [type=checkbox]")
    await dashboard.tab.until("document.querySelector('dialog textarea')")
    await dashboard.tab.page.locator("dialog textarea").fill("{")
    await dashboard.click("Get a quote", "dialog button")
    await dashboard.shows("The input is not valid JSON", "dialog")
    asked = '{"title": "owls", "reader": "Bob"}'
    await dashboard.tab.page.locator("dialog textarea").fill(asked)
    await dashboard.click("Get a quote", "dialog button")
    await dashboard.shows(
        "The new job reuses the results of 1 step: look up.", "dialog"
    )
    await dashboard.check("job fork")
    await dashboard.click("Fork", "dialog button")
    await dashboard.shows(job, ".facts")
    await dashboard.shows("with the results of 1 step", ".timeline")
    await dashboard.shows("succeeded", "h1")
    await dashboard.click("Output", "[role=tab]")
    await dashboard.shows("About herons, for Bob", "#panel")
    await dashboard.visit("admin/audit")
    await dashboard.shows("job.forked", "tbody")


async def test_who_may_not_submit_is_offered_no_fork(dashboard):
    job = await submit(dashboard, "ui.steps", {"title": "owls", "reader": "Bob"})
    _, text = await dashboard.key("tenant-operator", tenant="owls")
    shown = dashboard.server.shown(text)
    path = f"/v1/jobs/{job}/fork"
    client = dashboard.server.client
    refused = await client.post(path, json={"from": 1}, headers=shown)
    await dashboard.log_in("tenant-operator", tenant="owls")
    await dashboard.visit(f"jobs/{job}")
    await dashboard.shows("look up", ".timeline")
    await dashboard.tab.press("f")
    offered = await dashboard.tab.evaluate("document.querySelector('main').innerText")

    assert 403 == refused.status_code
    assert "Fork" not in offered
    assert not await dashboard.tab.evaluate("document.querySelector('dialog')")


async def test_numbers_are_shown_as_they_are(dashboard):
    """*Before: large ones lost their last digits.*"""
    job = await submit(dashboard, "demo.echo", {"id": 12345678901234567890})
    await dashboard.log_in(tenant="owls")
    await dashboard.visit(f"jobs/{job}?tab=Input")
    await dashboard.shows("12345678901234567890", "#panel")


async def test_what_belongs_to_others_is_hidden_until_asked_for(dashboard):
    job = await submit(dashboard, "demo.echo", {"a": "plover"}, Owner("owls", "bob"))
    await dashboard.log_in("tenant-operator", tenant="owls")
    await dashboard.visit(f"jobs/{job}")
    await dashboard.click("Input", "[role=tab]")
    await dashboard.shows("The content of this job belongs to another user", "#panel")
    assert "plover" not in await dashboard.tab.evaluate("document.body.innerText")
    assert not await dashboard.tab.evaluate("document.querySelector('.danger')")
    await dashboard.click("Show the content")
    await dashboard.shows("plover", "#panel")
    await dashboard.log_in("user", tenant="owls", user="cat")
    await dashboard.visit(f"jobs/{job}")
    await dashboard.shows("There is no such job")
    await dashboard.tab.open("about:blank")  # what was not answered yet is given up
    dashboard.forget_errors()  # the browser reports the 404


def in_an_hour(dashboard, owner):
    """Return the options of a job that starts in an hour."""
    later = dashboard.server.backburner.engine.now() / 1000 + 3600
    return Options(owner=owner, run_at=datetime.fromtimestamp(later, UTC))


async def test_results_events_and_text_of_others_are_hidden_until_asked_for(dashboard):
    """*Before: only the input and the output were.*"""
    bob = Owner("owls", "bob")
    done = await submit(dashboard, "ui.steps", {"title": "swan", "reader": "b"}, bob)
    await dashboard.log_in("tenant-operator", tenant="owls")
    await dashboard.visit(f"jobs/{done}?tab=Steps")
    await dashboard.shows("outline <b>", "#panel")
    await dashboard.check("job of another user")
    assert "swan" not in await dashboard.tab.evaluate("document.body.innerText")
    await dashboard.click("Events", "[role=tab]")
    await dashboard.shows("job.succeeded", "#panel")
    assert "{" not in await dashboard.tab.evaluate(PANEL)
    value = {"text": "The heron waits. " * 200, "seconds": 60}
    written = await submit(dashboard, "demo.write", value, bob, wait=False)
    await dashboard.visit(f"jobs/{written}")
    await dashboard.shows("The content of this job belongs to another user")
    assert "heron" not in await dashboard.tab.evaluate("document.body.innerText")
    await dashboard.click("Show the content")
    await dashboard.shows("The heron", ".writing")
    await dashboard.click("Input", "[role=tab]")
    await dashboard.shows("The heron waits.", "#panel")
    await dashboard.server.backburner.engine.cancel(written, bob)


async def test_the_input_is_not_shown_as_the_output(dashboard):
    """*Before: both were one component, which kept the input until the output came.*"""
    job = await submit(dashboard, "ui.steps", {"title": "grebe", "reader": "Eve"})
    await dashboard.log_in(tenant="owls")
    gate = asyncio.Event()

    async def late(route):
        await gate.wait()
        await route.continue_()

    await dashboard.visit(f"jobs/{job}")
    await dashboard.click("Input", "[role=tab]")
    await dashboard.shows("grebe", "#panel")
    await dashboard.tab.page.route("**/result", late)
    await dashboard.click("Output", "[role=tab]")
    await dashboard.tab.until(
        "document.querySelector('#tab-Output').ariaSelected === 'true'"
    )
    shown = await dashboard.tab.evaluate(PANEL)
    gate.set()
    await dashboard.shows("About grebe", "#panel")
    await dashboard.tab.page.unroute("**/result")

    assert "grebe" not in shown


async def test_an_administrator_cancels_and_forks_the_job_of_another_user(dashboard):
    """*Before: nobody could, though the server lets administrators do it.*"""
    bob = Owner("owls", "bob")
    engine = dashboard.server.backburner.engine
    waiting = await engine.submit("demo.echo", {}, in_an_hour(dashboard, bob))
    done = await submit(dashboard, "ui.steps", {"title": "ibis", "reader": "b"}, bob)
    await dashboard.log_in(tenant="owls")
    await dashboard.visit(f"jobs/{waiting.id}")
    await dashboard.click("Cancel", "button.danger")
    await dashboard.click("Cancel the job", "dialog button")
    await dashboard.shows("cancelled", "h1")
    await dashboard.visit(f"jobs/{done}")
    await dashboard.click("Fork", ".head button")
    await dashboard.click("Fork", "dialog button")
    await dashboard.shows(done, ".facts")
    await dashboard.shows("User\nbob", ".facts")
    dashboard.check_quiet()


async def test_who_may_not_act_for_others_is_offered_no_cancel(dashboard):
    scopes = frozenset({"jobs:read", "jobs:write", "tenant:read"})
    wanted = NewKey("clerk", scopes)
    made, text = await dashboard.server.backburner.keys.create(
        wanted, Actor("t", "owls")
    )
    options = in_an_hour(dashboard, Owner("owls", "bob"))
    job = await dashboard.server.backburner.engine.submit("demo.echo", {}, options)
    refused = await dashboard.server.client.post(
        f"/v1/jobs/{job.id}/cancel", json={}, headers=dashboard.server.shown(text)
    )
    await dashboard.log_in(key=(made.id, text))
    await dashboard.visit(f"jobs/{job.id}")
    await dashboard.shows("scheduled", "h1")

    assert 404 == refused.status_code
    assert not await dashboard.tab.evaluate("document.querySelector('.danger')")
    await dashboard.tab.press("?")
    await dashboard.shows("Back to the jobs", "dialog")
    told = await dashboard.tab.evaluate("document.querySelector('dialog').innerText")
    assert "Retry the job" not in told
    await dashboard.tab.press("Escape")


async def test_the_timeline_continues_after_the_first_page_of_changes(dashboard):
    """*Before: it ended at the 500th change and showed that one as lasting.*"""
    engine = dashboard.server.backburner.engine
    job = await engine.submit("demo.echo", {}, in_an_hour(dashboard, ANN))
    for change in range(1, 520):
        await engine.change(job.id, ANN, priority=change % 10)
    await dashboard.log_in(tenant="owls")
    await dashboard.visit(f"jobs/{job.id}")
    await dashboard.shows("460 entries in the middle are not shown.", "#panel")
    assert await dashboard.tab.evaluate(f"{TIMELINE}.includes('changed to 9')")
    await engine.change(job.id, ANN, priority=3)
    await dashboard.shows("461 entries in the middle are not shown.", "#panel")


async def test_an_error_after_the_first_read_is_shown(dashboard):
    """*Before: the old state stayed, without a word.*"""
    engine = dashboard.server.backburner.engine
    job = await engine.submit("demo.echo", {}, in_an_hour(dashboard, ANN))
    await dashboard.log_in(tenant="owls")
    await dashboard.visit(f"jobs/{job.id}")
    await dashboard.shows("scheduled", "h1")
    await dashboard.shows("scheduled", ".timeline")
    path = re.compile(r"/v1/jobs/job_[^/?]*[?]content=false")
    body = json.dumps({"detail": "The store is busy.", "code": "STORE_BUSY"})

    async def busy(route):
        await route.fulfill(status=503, body=body, content_type="application/json")

    await dashboard.tab.page.route(path, busy)
    await engine.change(job.id, ANN, priority=1)
    await dashboard.shows("The store is busy.", ".notice.bad")
    await dashboard.tab.page.unroute(path)
    await dashboard.click("Try again", ".notice.bad button")
    await dashboard.shows("Priority\n1", ".facts")
    await dashboard.tab.until("!document.querySelector('.notice.bad')")
    dashboard.tab.messages.clear()  # the browser reports the 503
    dashboard.tab.errors.clear()


async def test_a_job_lists_its_webhook_deliveries(dashboard):
    client = dashboard.server.client
    _, key = await dashboard.key("user", tenant="owls", user="ann")
    shown = dashboard.server.shown(key)
    callback = {"url": "https://hooks.example/owl"}
    endpoint = await client.post("/v1/endpoints", json=callback, headers=shown)
    disabled = f"/v1/endpoints/{endpoint.json()['id']}/disable"
    assert 200 == (await client.post(disabled, headers=shown)).status_code
    body = {"capability": "demo.echo", "input": {}, "callback": callback}
    made = (await client.post("/v1/jobs", json=body, headers=shown)).json()["id"]
    await dashboard.log_in("user", tenant="owls", user="ann")
    await dashboard.visit(f"jobs/{made}?tab=Webhooks")
    await dashboard.shows("failed", "[aria-label='Webhook deliveries']")
    await dashboard.check("job deliveries")
    await dashboard.click("…", "#panel td a")
    await dashboard.shows("webhook.deliver", "h1")


async def test_a_staged_retry_says_in_words_why_it_stopped(dashboard):
    engine = dashboard.server.backburner.engine
    poison = ("ui.flaky", {"poison": True}, Options(owner=ANN, tags=["staged"]))
    for made in await engine.submit_many([poison] * 3):
        await engine.wait(made.id, ANN, timeout=60)
    where = {"tag": "staged", "state": "failed"}
    body = {"action": "retry", "where": where, "staged": True}
    job = await dashboard.submit("/v1/jobs/bulk", body, tenant="owls")
    await dashboard.log_in(tenant="owls")
    await dashboard.visit(f"jobs/{job['id']}")
    await dashboard.shows("1 job retried, 0 skipped.")
    await dashboard.shows("Stage 1, 1 job: 0 succeeded, 1 failed again")
    await dashboard.shows("The retry stopped after stage 1: 1 of 1 failed again")
    await dashboard.check("job staged retry")


CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
ODD = 'it\'s \x03\n"$HOME" `id` \\\x9f\u202e “x”'
COPIED = """
Object.defineProperty(navigator.clipboard, 'writeText', {
  value: async text => { window.copied = text },
})
"""


@pytest_asyncio.fixture(loop_scope="module")
async def submitter(dashboard):
    """Run what was copied, and return the job that it submitted."""
    wanted = NewKey("shell", ROLES[Role("user")], user="1")
    _, key = await dashboard.server.backburner.keys.create(wanted, Actor("t", "owls"))

    async def run(*command):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
        process = await asyncio.create_subprocess_exec(
            *command,
            env={"PATH": path, "LANG": "C.UTF-8", "BACKBURNER_API_KEY": key},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert 0 == process.returncode, (out, err)
        listed = await dashboard.server.client.get(
            "/v1/jobs?limit=1", headers=dashboard.server.shown(key)
        )
        path = f"/v1/jobs/{listed.json()['items'][0]['id']}"
        found = await dashboard.server.client.get(
            path, headers=dashboard.server.shown(key)
        )
        return found.json()

    return run


async def test_what_is_copied_submits_the_same_job_again(dashboard, submitter):
    """*Before: numbers lost digits, and a shell got control characters.*"""
    value = {"odd": ODD, "big": 12345678901234567890, "one": 1.0}
    options = Options(owner=ANN, tags=["it's <odd>"], metadata={"note": ODD})
    engine = dashboard.server.backburner.engine
    made = await engine.submit("demo.echo", value, options)
    await dashboard.log_in(tenant="owls")
    await dashboard.visit(f"jobs/{made.id}")
    await dashboard.shows("demo.echo", "h1")
    await dashboard.tab.evaluate(COPIED)
    seen = {made.id}
    for kind, program in (
        ("curl", ("bash", "-c")),
        ("Python", (sys.executable, "-c")),
        ("CLI", ("bash", "-c")),
    ):
        await dashboard.tab.evaluate("window.copied = ''")
        await dashboard.click("Copy as…", "summary")
        await dashboard.click(kind, ".menu button")
        copied = await dashboard.tab.until("window.copied")
        assert not CONTROLS.search(copied), copied
        again = await submitter(*program, copied)
        assert again["id"] not in seen, kind
        seen.add(again["id"])
        assert value == again["input"], kind
        assert isinstance(again["input"]["one"], float), kind
        assert ["it's <odd>"] == again["tags"], kind
        assert {"note": ODD} == again["metadata"], kind


async def test_copying_the_input_of_another_user_is_asked_first(dashboard):
    job = await submit(dashboard, "demo.echo", {"a": "rail"}, Owner("owls", "bob"))
    await dashboard.log_in("tenant-operator", tenant="owls")
    await dashboard.visit(f"jobs/{job}")
    await dashboard.shows("demo.echo", "h1")
    await dashboard.tab.evaluate(COPIED)
    await dashboard.click("Copy as…", "summary")
    await dashboard.click("curl", ".menu button")
    await dashboard.shows("Copy the input of another user's job?", "dialog")
    assert not await dashboard.tab.evaluate("window.copied")
    await dashboard.click("Copy as curl", "dialog button")
    await dashboard.tab.until("window.copied?.includes('rail')")


async def test_an_input_that_is_no_longer_wanted_does_not_come_back(dashboard):
    """*Before: it came back when it was read, and was sent with the fork.*"""
    job = await submit(dashboard, "ui.steps", {"title": "coot", "reader": "Eve"})
    await dashboard.log_in(tenant="owls")
    await dashboard.visit(f"jobs/{job}")
    await dashboard.click("Fork", ".head button")
    gate = asyncio.Event()

    async def late(route):
        await gate.wait()
        await route.continue_()

    await dashboard.tab.page.route("**/input", late)
    box = dashboard.tab.page.locator("dialog [type=checkbox]")
    await box.check()
    await box.uncheck()
    async with dashboard.tab.page.expect_response("**/input"):
        gate.set()
    await dashboard.tab.evaluate("new Promise(done => requestAnimationFrame(done))")
    await dashboard.tab.page.unroute("**/input")
    assert not await dashboard.tab.evaluate("document.querySelector('dialog textarea')")
    assert not await box.is_checked()
    await box.check()
    await dashboard.tab.until("document.querySelector('dialog textarea')")
