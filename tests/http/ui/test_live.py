"""What open pages read and show while jobs run, in a real browser."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import Options
from tests.http.ui.conftest import resumed

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN = Owner("owls", "1")
LATER = Options(owner=ANN, delay=timedelta(days=1))
TEXT = "document.querySelector('.writing pre')?.textContent"
HIDDEN = "Object.defineProperty(document, 'hidden', {configurable: true, value: true})"
SHOWN = """
Object.defineProperty(document, 'hidden', {configurable: true, value: false})
document.dispatchEvent(new Event('visibilitychange'))
"""
TURN = "new Promise(done => setTimeout(() => setTimeout(done)))"
THROTTLED = f"""(async () => {{
  const {{ throttled }} = await import('/ui/core.js')
  let calls = 0
  let finish
  const call = throttled(() => (calls++, new Promise(done => (finish = done))), 0)
  call()
  await {TURN}
  call()
  call()
  await {TURN}
  const before = calls
  finish()
  await {TURN}
  return [before, calls]
}})()"""
"""Calls a throttled function twice more while its work goes on."""


@asynccontextmanager
async def held(dashboard, pattern):
    """Hold back the answers to some requests; yield what lets each go, as they come."""
    asked, is_over = asyncio.Queue(), False

    async def hold(route):
        may_go = asyncio.Event()
        if not is_over:
            await asked.put(may_go)
            await may_go.wait()
        await route.continue_()

    await dashboard.tab.page.route(pattern, hold)
    yield asked
    is_over = True
    while not asked.empty():
        asked.get_nowait().set()
    await dashboard.tab.page.unroute(pattern)


async def test_text_with_emoji_is_shown_in_full(dashboard):
    """*Before: each code point beyond U+FFFF let the next piece be dropped.*"""
    text = "Hi 😀 there, how are you? 🎉 Fine."
    await dashboard.log_in(tenant="owls")
    later = Options(owner=ANN, delay=timedelta(days=1))
    engine = dashboard.server.backburner.engine
    job = await engine.submit("demo.write", {"text": text, "seconds": 1}, later)
    await dashboard.visit(f"jobs/{job.id}")
    await dashboard.shows("scheduled", "h1")
    await dashboard.click("Change")
    await dashboard.click("Start now", "dialog button")
    await dashboard.shows("succeeded", "h1")

    await dashboard.tab.until(f"{TEXT} === {json.dumps(text)}")


async def test_text_of_an_attempt_that_goes_on_follows_what_was_there(dashboard):
    """*Before: the text of each attempt started anew.*"""
    resumed["is_seen"] = asyncio.Event()
    engine = dashboard.server.backburner.engine
    await dashboard.log_in(tenant="owls")
    job = await engine.submit("ui.resumed", {}, Options(owner=ANN))
    await dashboard.visit(f"jobs/{job.id}")
    await dashboard.tab.until(f"{TEXT}?.endsWith('world')")
    seen = await dashboard.tab.evaluate(TEXT)
    resumed["is_seen"].set()
    await dashboard.shows("succeeded", "h1")

    assert "Hello world" == seen == await dashboard.tab.evaluate(TEXT)


async def test_a_tab_that_was_opened_in_the_background_catches_up(dashboard):
    """*Before: it said “Live” and showed what was when it was opened.*"""
    engine = dashboard.server.backburner.engine
    job = await engine.submit("demo.echo", {}, LATER)
    await dashboard.log_in(tenant="owls")
    page = await dashboard.tab.page.context.new_page()
    await page.add_init_script(HIDDEN)
    await page.goto(f"{dashboard.server.url}/ui/jobs/{job.id}")
    await page.locator("h1", has_text="scheduled").wait_for()
    await page.locator(".connection", has_text="Paused").wait_for()
    await engine.cancel(job.id, ANN)
    session = await page.context.new_cdp_session(page)
    await session.send("Runtime.evaluate", {"expression": SHOWN})

    await page.locator("h1", has_text="cancelled").wait_for()
    await page.close()


async def test_an_answer_is_shown_although_another_is_on_its_way(dashboard):
    """*Before: while events came, a slow server's answers were all thrown away.*"""
    engine = dashboard.server.backburner.engine
    job = await engine.submit("demo.echo", {}, LATER)
    await dashboard.log_in(tenant="owls")
    async with held(dashboard, f"**/v1/jobs/{job.id}?content=false") as asked:
        await dashboard.visit(f"jobs/{job.id}")
        first = await asked.get()
        await dashboard.shows("Live", ".connection")
        await engine.cancel(job.id, ANN)
        second = await asked.get()
        first.set()
        await dashboard.tab.until("document.querySelector('h1 .state')")
        second.set()
        await dashboard.shows("cancelled", "h1")


async def test_what_takes_long_is_not_begun_again_before_it_ends(dashboard):
    """*Before: reads piled up.*"""
    await dashboard.visit("")
    told = await dashboard.tab.evaluate(THROTTLED)
    await dashboard.visit("jobs")

    assert [1, 2] == told


async def test_an_answer_that_breaks_off_is_an_error(dashboard):
    """*Before: it was taken as an empty one.*"""
    await dashboard.log_in("platform-administrator", tenant="default")

    async def cut(route):
        json_type = "application/json"
        await route.fulfill(status=200, content_type=json_type, body='{"items": [')

    await dashboard.tab.page.route("**/v1/lanes", cut)
    await dashboard.visit("lanes")
    await dashboard.shows("The response of the server is incomplete", "[role=alert]")
    await dashboard.tab.page.unroute("**/v1/lanes")
    await dashboard.click("Try again")
    await dashboard.shows("No provider has been called yet")


async def test_a_view_that_cannot_be_shown_leaves_the_others(dashboard):
    """*Before: the page stayed as it was, without a word.*"""
    await dashboard.log_in("platform-administrator", tenant="default")

    async def spoil(route):
        await route.fulfill(json={"items": [None]})

    await dashboard.tab.page.route("**/v1/lanes", spoil)
    await dashboard.visit("lanes")
    await dashboard.shows("This page cannot be shown", "[role=alert]")
    await dashboard.click("Questions", "nav a")
    await dashboard.shows("No open questions")
    await dashboard.tab.page.unroute("**/v1/lanes")
    dashboard.forget_errors()  # the page reports the error for developers


async def test_rows_of_a_long_list_that_no_longer_match_say_so(dashboard):
    """*Before: only those of a list of one page did.*"""
    client = dashboard.server.client
    _, text = await dashboard.key("tenant-administrator", tenant="terns")
    shown = dashboard.server.shown(text)
    step = {"name": "a", "capability": "demo.echo", "input": {}}
    flow = {"steps": [{**step, "run_at": "2099-01-01T00:00:00Z"}]}
    made = []
    for _ in range(60):
        answer = await client.post("/v1/flows", json=flow, headers=shown)
        assert 202 == answer.status_code, answer.text
        made.append(answer.json()["id"])
    await dashboard.log_in(tenant="terns")
    await dashboard.visit("flows?state=running")
    await dashboard.tab.until("document.querySelectorAll('tbody tr').length === 50")
    for name in (made[-1], made[30]):
        path = f"/v1/flows/{name}/cancel"
        await client.post(path, json={}, headers=shown)
    await dashboard.tab.until(
        "[...document.querySelectorAll('tbody tr')]"
        ".filter(row => row.innerText.includes('no match')).length === 2"
    )
    await dashboard.shows("Show 2 more", ".fresh")
    await dashboard.click("Show 2 more")
    await dashboard.tab.until("!document.querySelector('.fresh')")
    rows = "document.querySelector('tbody').innerText.includes('no match')"
    assert not await dashboard.tab.evaluate(rows)
