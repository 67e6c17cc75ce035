"""Login, keyboard, theme and connection of the dashboard, in a real browser."""

import gzip
import hashlib
import json
import re
from datetime import timedelta

import pytest

from backburner.domain.jobs.job import Owner
from backburner.engine.access.keys import Actor
from backburner.engine.submit.submission import Options
from backburner.http import dashboard as served
from backburner.http import sessions

pytestmark = pytest.mark.asyncio(loop_scope="module")

MOST_BYTES = 120_000
NOT_LOADED = (served.SCRIPT, served.STYLE, "vendor/LICENSE", "vendor/VENDOR.json")
"""What no browser requests: the page contains the first two."""
SPANS = (5, 15, 60)
"""Seconds that a session lasts: with the first in which a page can be read."""
FOCUS = "document.activeElement.id"
HIDE = """
Object.defineProperty(document, 'hidden', {configurable: true, value: true})
document.dispatchEvent(new Event('visibilitychange'))
"""
SHOW = """
{
  const [read, clock] = [window.fetch, Date.now]
  window.fetch = (path, how) => {
    if (path === '/v1/events') window.after = how.headers['Last-Event-ID'] ?? null
    return read(path, how)
  }
  Date.now = () => clock() + %d * 60_000
  Object.defineProperty(document, 'hidden', {configurable: true, value: false})
  document.dispatchEvent(new Event('visibilitychange'))
}
"""
"""Shows the tab again so many minutes later; `after` is where its stream goes on."""


async def test_a_person_logs_in_and_out(dashboard):
    await dashboard.visit("jobs?state=failed")
    await dashboard.shows("Log in to Backburner")
    await dashboard.tab.click("#key")
    await dashboard.tab.type("bb_live_wrong")
    await dashboard.tab.press("Enter")
    await dashboard.shows("This key is not valid")
    dashboard.tab.messages.clear()  # the browser reports a 401 by itself
    dashboard.tab.errors.clear()

    await dashboard.log_in(user=None)
    await dashboard.shows("acme", ".who")
    await dashboard.shows("tenant-administrator", ".role")
    await dashboard.check("shell")

    await dashboard.click("Log out")
    await dashboard.shows("Log in to Backburner")
    assert not await dashboard.tab.evaluate("document.querySelector('.who')")


async def test_keys_and_theme_do_what_the_help_says(dashboard):
    await dashboard.log_in(tenant="nothing-yet")
    await dashboard.visit("jobs")
    await dashboard.shows("There are no jobs yet")
    await dashboard.shows("backburner submit", ".empty code")
    await dashboard.tab.press("?")
    await dashboard.shows("Go to the search box", "dialog")
    await dashboard.click("Close")
    await dashboard.tab.press("/")
    await dashboard.tab.until(f"{FOCUS} === 'query'")
    await dashboard.tab.evaluate(
        "(() => { const found = document.querySelector('.theme select');"
        "found.value = 'dark'; found.dispatchEvent(new Event('change')) })()"
    )
    await dashboard.tab.reload()
    await dashboard.tab.until("document.documentElement.dataset.theme === 'dark'")
    await dashboard.tab.evaluate("localStorage.clear()")


async def test_what_is_typed_after_a_slash_is_a_filter(dashboard):
    """*Before: from a view without a box the letters were commands.*"""
    await dashboard.log_in()
    await dashboard.visit("overview")
    await dashboard.shows("Live", ".connection")
    await dashboard.tab.press("/")
    await dashboard.tab.until("document.title.startsWith('Jobs')")
    for key in "jkx":
        await dashboard.tab.press(key)
    value = "document.getElementById('query').value"
    assert "jkx" == await dashboard.tab.evaluate(value)


async def test_nothing_moves_in_the_navigation(dashboard):
    """*Before: the title of the open view was wider than it is otherwise.*"""
    await dashboard.log_in()
    places = (
        "[...document.querySelectorAll('nav a')]"
        ".map(one => [one.offsetLeft, one.offsetWidth])"
    )
    seen = []
    for name in ("Overview", "Questions", "Playground"):
        await dashboard.click(name, "nav a")
        await dashboard.tab.until(f"document.title.startsWith('{name}')")
        seen.append(await dashboard.tab.evaluate(places))
    assert seen == 3 * seen[:1]


async def test_a_lost_stream_is_said_and_opened_again(dashboard):
    await dashboard.log_in()
    streams = dashboard.server.app.state.server_state.streams
    streams.stopping.set()
    await dashboard.shows("Reconnecting", ".connection")
    streams.stopping.clear()
    await dashboard.shows("Live", ".connection")


async def test_a_tab_that_was_hidden_for_long_does_not_read_what_it_missed(dashboard):
    await dashboard.log_in()
    again = []
    for minutes in (0, 2):
        await dashboard.tab.evaluate(HIDE)
        await dashboard.shows("Paused", ".connection")
        await dashboard.tab.evaluate(SHOW % minutes)
        await dashboard.shows("Live", ".connection")
        await dashboard.tab.until("document.querySelector('[role=status]')")
        again.append(await dashboard.tab.evaluate("window.after"))
    await dashboard.tab.reload()

    assert again[0].isdecimal()
    assert again[1] is None


async def test_the_first_key_of_two_waits_for_the_second_whatever_was_pressed_before(
    dashboard,
):
    """*Before: the end of the wait of the first `g` also forgot the next one.*"""
    await dashboard.log_in()
    clock = dashboard.tab.page.clock
    await clock.install()
    await clock.pause_at(await dashboard.tab.evaluate("Date.now() + 1000"))
    for key, passed in (("g", 0), ("o", 1400), ("g", 200), ("w", 1000)):
        await dashboard.tab.press(key)
        await clock.run_for(passed)
    await clock.resume()
    await dashboard.tab.until("document.title.startsWith('Flows')")
    await dashboard.visit("")


async def test_a_page_without_all_of_its_files_says_so(dashboard):
    await dashboard.tab.page.route("**/flows.js", lambda route: route.abort())
    await dashboard.visit("jobs")
    await dashboard.shows("The dashboard could not be loaded")
    await dashboard.tab.evaluate("window.isFormer = true")
    await dashboard.click("Reload the page", "a")
    await dashboard.tab.until("!window.isFormer")
    await dashboard.shows("The dashboard could not be loaded")
    await dashboard.tab.page.unroute("**/flows.js")
    await dashboard.tab.reload()
    await dashboard.tab.until("document.querySelector('nav')")
    dashboard.tab.messages.clear()  # the browser reports the missing file
    dashboard.tab.errors.clear()


async def test_a_revoked_key_leads_to_the_login_and_leaves_nothing(dashboard):
    key_id = await dashboard.log_in("user", user="ann")
    server = dashboard.server
    await dashboard.visit("jobs")
    await dashboard.shows("0 in total")  # else the list may have the job from the start
    ann = Options(owner=Owner("acme", "ann"), tags=["plover"])
    await server.backburner.engine.submit("demo.echo", {}, ann)
    await dashboard.shows("plover", "table")
    await server.backburner.keys.revoke(key_id, Actor("t", "acme"))
    await dashboard.shows("Your session has ended")
    assert "plover" not in await dashboard.tab.evaluate("document.body.innerText")
    assert not await dashboard.tab.evaluate("document.querySelector('table')")


async def test_an_expired_session_leads_to_the_login_and_leaves_nothing(
    dashboard, monkeypatch
):
    ann = Owner("acme", "ann")
    later = Options(owner=ann, tags=["whimbrel"], delay=timedelta(days=1))
    made = await dashboard.server.backburner.engine.submit("demo.echo", {}, later)
    form = "document.getElementById('key')"
    ended = "document.body.innerText.includes('Your session has ended')"
    for seconds in SPANS:
        monkeypatch.setattr(sessions, "SPAN", timedelta(seconds=seconds))
        _, text = await dashboard.key("user", user="ann")
        await dashboard.enter(text)
        await dashboard.tab.until(f"document.querySelector('.who') || {ended}")
        await dashboard.visit(f"jobs/{made.id}")
        shown = "document.querySelector('.facts')?.innerText.includes('whimbrel')"
        await dashboard.tab.until(f"{shown} || {form}")
        if await dashboard.tab.evaluate(shown):
            break
    monkeypatch.undo()
    # Nothing is asked for and nobody touches the page: its stream ends.
    await dashboard.shows("Your session has ended")
    page = dashboard.tab.page
    for step in (page.title, page.go_back, page.go_forward):
        await step()
        await dashboard.tab.until(form)
        html = await dashboard.tab.evaluate("document.documentElement.outerHTML")
        assert "whimbrel" not in html, step
    _, text = await dashboard.key("user", user="ann")
    await dashboard.tab.click("#key")
    await dashboard.tab.type(text)
    await dashboard.tab.press("Enter")
    await dashboard.shows("Live", ".connection")
    dashboard.tab.messages.clear()  # the browser reports the 401
    dashboard.tab.errors.clear()


async def test_nobody_answers_a_question_that_was_put_to_another_login(dashboard):
    """*Before: who logged in next was asked, with the focus on what cancels.*"""
    key_id = await dashboard.log_in()
    server = dashboard.server
    later = Options(owner=Owner("acme", "1"), delay=timedelta(days=1))
    job = await server.backburner.engine.submit("demo.echo", {}, later)
    await dashboard.visit(f"jobs/{job.id}")
    await dashboard.click("Cancel", "button.danger")
    await dashboard.shows("Cancel this job?", "dialog")
    await server.backburner.keys.revoke(key_id, Actor("t", "acme"))
    await dashboard.shows("Your session has ended")
    _, text = await dashboard.key("tenant-administrator")
    await dashboard.tab.click("#key")
    await dashboard.tab.type(text)
    await dashboard.tab.press("Enter")
    await dashboard.shows("scheduled", "h1")

    assert not await dashboard.tab.evaluate("document.querySelector('dialog')")
    dashboard.tab.messages.clear()  # the browser reports the 401
    dashboard.tab.errors.clear()


async def test_other_tabs_follow_a_logout_and_a_login(dashboard):
    await dashboard.log_in("user", user="ann")
    page = await dashboard.tab.page.context.new_page()
    await page.goto(f"{dashboard.server.url}/ui/jobs")
    await (
        page.get_by_text("There are no jobs yet").or_(page.locator("table")).wait_for()
    )
    await dashboard.click("Log out")
    await page.get_by_text("Log in to Backburner").wait_for()
    _, text = await dashboard.key("tenant-administrator")
    await dashboard.tab.click("#key")
    await dashboard.tab.type(text)
    await dashboard.tab.press("Enter")
    await page.locator(".role", has_text="tenant-administrator").wait_for()
    await page.close()


async def test_a_platform_operator_acts_in_another_tenant(dashboard):
    engine = dashboard.server.backburner.engine
    owner = Owner("storks", "ann")
    await engine.submit("demo.echo", {}, Options(owner=owner, tags=["nest"]))
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("jobs?tag=nest")
    await dashboard.shows("No job matches")
    await dashboard.click("default", ".who button")
    await dashboard.tab.page.locator("dialog [name=tenant]").fill("storks")
    await dashboard.click("Switch tenant", "dialog button")
    await dashboard.shows("storks", ".who")
    await dashboard.shows("nest", "table")
    await dashboard.tab.reload()
    await dashboard.shows("nest", "table")
    await dashboard.click("Log out")
    await dashboard.shows("Log in to Backburner")
    await dashboard.log_in("tenant-administrator", tenant="acme")
    await dashboard.shows("acme", ".who")


async def test_pages_are_small_and_of_this_server_only():
    sizes = {
        path: len(gzip.compress(page.content, 9))
        for path, page in served.pages().items()
        if not path.startswith(NOT_LOADED)
    }
    assert sum(sizes.values()) < MOST_BYTES, sizes
    for path, page in served.pages().items():
        if path.endswith((".js", ".html", ".css")) and "vendor" not in path:
            text = page.content.decode()
            # The name of a format, and an address in commands to copy.
            for known in ("http://www.w3.org/2000/svg", "https://example.com/hooks"):
                text = text.replace(known, "")
            assert "https://" not in text, path
            assert "innerHTML" not in text, path


async def test_vendored_files_are_those_that_are_listed():
    files = served.pages()
    for row in json.loads(files["vendor/VENDOR.json"].content):
        content = files[f"vendor/{row['file']}"].content
        assert row["sha256"] == hashlib.sha256(content).hexdigest(), row["file"]


async def test_views_get_the_page_and_missing_files_do_not(dashboard):
    client = dashboard.server.client
    page = await client.get("/ui/jobs/job_1.2")
    assert "text/html; charset=utf-8" == page.headers["content-type"]
    assert "trusted-types 'none'" in page.headers["content-security-policy"]
    assert 404 == (await client.get("/ui/nothing.js")).status_code
    assert (
        304
        == (
            await client.get("/ui/", headers={"If-None-Match": page.headers["etag"]})
        ).status_code
    )
    plain = await client.get("/ui/ui.css", headers={"Accept-Encoding": "identity"})
    packed = await client.get("/ui/ui.css", headers={"Accept-Encoding": "gzip"})
    assert "gzip" == packed.headers["content-encoding"]
    assert plain.content == packed.content


async def test_the_page_can_be_painted_before_other_files_are_read(dashboard):
    client = dashboard.server.client
    page = (await client.get("/ui/")).text
    head = page.partition("</head>")[0]
    modules = set(re.findall(r'rel="modulepreload" href="([^"]+)"', head))
    started = re.findall(r'<script type="module" src="([^"]+)"', head)
    named = {path.partition("/-/")[2][33:] for path in (*modules, *started)}
    assert {path for path in served.pages() if path.endswith(".js")} == {
        *named,
        "theme.js",
    }
    assert [] == re.findall(r'<script src|rel="stylesheet"', head)
    assert served.pages()["ui.css"].content.decode() in head


async def test_files_are_kept_by_browsers_until_another_release_names_others(dashboard):
    client = dashboard.server.client
    page = (await client.get("/ui/")).text
    [path] = re.findall(r'src="([^"]+main.js)"', page)
    kept = await client.get(path)
    other = await client.get(path.replace(served.version(), 32 * "0"))
    plain = await client.get("/ui/main.js")

    assert kept.content == other.content == plain.content
    assert "immutable" in kept.headers["cache-control"]
    assert ["no-cache"] * 2 == [one.headers["cache-control"] for one in (other, plain)]
    # Only files are kept: the page names those of its release.
    for name in ("nothing.js", "jobs", "index.html"):
        missing = await client.get(path.replace("main.js", name))
        assert 404 == missing.status_code, name
