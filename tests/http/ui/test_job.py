"""The page of one job, in a real browser."""

import json

import pytest

from backburner.domain.jobs.job import Owner
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


async def test_what_belongs_to_others_is_hidden_until_asked_for(dashboard):
    job = await submit(dashboard, "demo.echo", {"a": "plover"}, Owner("owls", "bob"))
    await dashboard.log_in("tenant-operator", tenant="owls")
    await dashboard.visit(f"jobs/{job}")
    await dashboard.click("Input", "[role=tab]")
    await dashboard.shows("This input belongs to another user", "#panel")
    assert "plover" not in await dashboard.tab.evaluate("document.body.innerText")
    assert not await dashboard.tab.evaluate("document.querySelector('.danger')")
    await dashboard.click("Show the input")
    await dashboard.shows("plover", "#panel")
    await dashboard.log_in("user", tenant="owls", user="cat")
    await dashboard.visit(f"jobs/{job}")
    await dashboard.shows("There is no such job")
