"""The list of jobs: filters, live rows, selection and bulk actions, in a browser."""

import asyncio
import re
from datetime import UTC, datetime

import pytest

from backburner.domain.jobs.job import Owner
from backburner.engine.access.keys import Actor, NewKey
from backburner.engine.submit.submission import Options

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN, BOB = Owner("birds", "ann"), Owner("birds", "bob")
ROWS = "document.querySelectorAll('.jobs tbody tr').length"
PICKED = "document.querySelectorAll('.jobs tbody tr.picked').length"
CURRENT = (
    "[...document.querySelectorAll('.jobs tbody tr')]"
    ".findIndex(row => row.matches('.current'))"
)


async def submit(dashboard, count, capability="demo.fail", owner=ANN, **more):
    fails = {"times": 100, "error": "permanent"}
    value = fails if capability == "demo.fail" else {}
    wanted = [(capability, value, Options(owner=owner, **more))] * count
    for made in await dashboard.server.backburner.engine.submit_many(wanted):
        if not more.get("run_at"):
            await dashboard.server.backburner.engine.wait(made.id, owner, timeout=60)


async def test_filters_are_in_the_address_and_in_the_query_box(dashboard):
    await submit(dashboard, 3)
    await submit(dashboard, 2, "demo.echo", BOB, tags=["nightly"])
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs")
    await dashboard.tab.until(f"{ROWS} === 5")
    await dashboard.click("failed", ".chips button")
    await dashboard.tab.until(f"{ROWS} === 3 && location.search === '?state=failed'")
    await dashboard.shows("3 match")
    await dashboard.click("succeeded", ".chips button")
    await dashboard.tab.until(
        f"{ROWS} === 5 && location.search === '?state=succeeded,failed'"
    )
    assert "state:succeeded,failed" == await dashboard.tab.evaluate(
        "document.getElementById('query').value"
    )
    await dashboard.check("jobs")
    for typed, rows in (
        ("user:bob tag:nightly since:1h sort:oldest", 2),
        ("capability:demo.fail until:2000-01-01", 0),
        ("queue:demo", 5),
    ):
        await dashboard.tab.press("/")
        await dashboard.tab.evaluate("document.getElementById('query').value = ''")
        await dashboard.tab.type(typed)
        await dashboard.tab.press("Enter")
        await dashboard.tab.until(f"{ROWS} === {rows}")
    await dashboard.tab.press("/")
    await dashboard.tab.type(" color:red")
    await dashboard.tab.press("Enter")
    await dashboard.shows("There is no filter “color”")


async def test_names_of_users_are_shown_as_text(dashboard):
    await submit(dashboard, 1, "ui.hostile", tags=["<b>bold</b>"])
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs")
    await dashboard.shows("<b>bold</b>", "table")
    await dashboard.shows("onerror", "table .why")
    await dashboard.shows("⟨202E⟩gnp.exe⟨001B⟩[31m", "table .why")
    assert not await dashboard.tab.evaluate("document.querySelector('table b, img')")
    assert not await dashboard.tab.evaluate("window.isBroken")


async def test_keys_select_jobs_and_live_updates_keep_the_selection(dashboard):
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs?state=failed&capability=demo.fail")
    await dashboard.tab.until(f"{ROWS} === 3")
    for key, place in (("j", 0), ("j", 1), ("k", 0), ("j", 1)):
        await dashboard.tab.press(key)
        await dashboard.tab.until(f"{CURRENT} === {place}")
    await dashboard.tab.press("x")
    await dashboard.shows("1 selected")
    chosen = await dashboard.tab.evaluate(
        "document.querySelector('tr.picked').dataset.id"
    )
    await submit(dashboard, 1)
    await dashboard.shows("Show 1 new", ".bulk")
    assert 3 == await dashboard.tab.evaluate(ROWS), "nothing moves by itself"
    assert chosen == await dashboard.tab.evaluate(
        "document.querySelector('tr.picked').dataset.id"
    )
    await dashboard.tab.press("r")
    await dashboard.shows("Retry 1 job?", "dialog")
    await dashboard.click("Go back")
    assert 1 == await dashboard.tab.evaluate(PICKED)


async def test_all_matching_jobs_are_cancelled_by_one_job(dashboard):
    later = dashboard.server.backburner.engine.now() + 3_600_000
    run_at = datetime.fromtimestamp(later / 1000, UTC)
    await submit(dashboard, 60, "demo.echo", Owner("birds", "1"), run_at=run_at)
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs?state=scheduled")
    await dashboard.tab.until(f"{ROWS} === 50")
    await dashboard.tab.click("thead input")
    await dashboard.click("Select all 60 matching")
    await dashboard.click("Cancel", ".bulk button.danger")
    await dashboard.shows("Cancel all 60 matching jobs?", "dialog")
    await dashboard.click("Cancel all 60 matching jobs", "dialog button.danger")
    await dashboard.tab.until("location.pathname.startsWith('/ui/jobs/job_')")
    await dashboard.shows("60 cancelled, 0 skipped")
    await dashboard.shows("60 jobs cancelled, 0 skipped.")
    entries = await dashboard.server.backburner.engine.store.audited(
        "birds", before=None, limit=1
    )
    assert "jobs.bulk_cancel" == entries[0].action
    dashboard.check_quiet()


async def test_a_role_sees_only_what_it_may_do_and_the_server_agrees(dashboard):
    await dashboard.log_in("tenant-operator", tenant="birds")
    await dashboard.visit("jobs")
    await dashboard.tab.until(f"{ROWS} > 3")
    await dashboard.tab.click("tbody input")
    await dashboard.shows("1 selected")
    assert not await dashboard.tab.evaluate("document.querySelector('.bulk .danger')")
    _, text = await dashboard.key("tenant-operator", tenant="birds")
    body = {"action": "cancel", "where": {}}
    refused = await dashboard.server.client.post(
        "/v1/jobs/bulk", json=body, headers=dashboard.server.shown(text)
    )
    assert (403, "FORBIDDEN") == (refused.status_code, refused.json()["code"])


async def test_who_may_change_nothing_is_offered_no_selection(dashboard):
    made, text = await dashboard.server.backburner.keys.create(
        NewKey("reader", frozenset({"jobs:read", "tenant:read"})), Actor("t", "birds")
    )
    await dashboard.log_in(key=(made.id, text))
    await dashboard.visit("jobs")
    await dashboard.tab.until(f"{ROWS} > 3")
    await dashboard.tab.press("j")
    await dashboard.tab.until(f"{CURRENT} === 0")
    await dashboard.tab.press("x")
    await dashboard.tab.press("?")
    await dashboard.shows("Next job", "dialog")

    help_text = await dashboard.tab.evaluate(
        "document.querySelector('dialog').innerText"
    )
    assert "Select the job" not in help_text
    assert "Retry" not in help_text
    assert not await dashboard.tab.evaluate(
        "document.querySelector('main input[type=checkbox]')"
    )
    assert 0 == await dashboard.tab.evaluate(PICKED)
    await dashboard.tab.press("Escape")


async def test_an_old_answer_does_not_replace_that_of_a_newer_filter(dashboard):
    """*Before: the rows of the old filter came back under the new one.*"""
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs")
    await dashboard.tab.until(f"{ROWS} > 3")
    gate = asyncio.Event()

    async def late(route):
        await gate.wait()
        await route.continue_()

    old = re.compile(r"/v1/jobs\?.*state=failed")
    await dashboard.tab.page.route(old, late)
    await dashboard.click("failed", ".chips button")
    await dashboard.tab.until("location.search === '?state=failed'")
    await dashboard.click("failed", ".chips button")
    await dashboard.click("succeeded", ".chips button")
    only = f"{ROWS} > 0 && !document.querySelector('tbody .state:not(.succeeded)')"
    await dashboard.tab.until(only)
    async with dashboard.tab.page.expect_response(old):
        gate.set()
    await dashboard.tab.evaluate("new Promise(done => requestAnimationFrame(done))")
    await dashboard.tab.page.unroute(old)

    assert await dashboard.tab.evaluate(only)
    assert "?state=succeeded" == await dashboard.tab.evaluate("location.search")


async def test_the_current_row_stays_the_same_job(dashboard):
    """*Before: a key acted on the job that came to the place of the former one.*"""
    current = "document.querySelector('tr.current')?.dataset.id"
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs?queue=demo")
    await dashboard.tab.until(f"{ROWS} > 3")
    for _ in range(2):
        await dashboard.tab.press("j")
    chosen = await dashboard.tab.evaluate(current)
    await submit(dashboard, 1, "demo.echo")
    await dashboard.click("Show 1 new")
    await dashboard.tab.until(f"{CURRENT} === 2")
    after = await dashboard.tab.evaluate(current)
    await dashboard.tab.press("j")
    await dashboard.tab.until(f"{CURRENT} === 3")

    assert chosen == after


async def test_a_failed_read_leaves_no_rows_of_the_former_filter(dashboard):
    """*Before: failed jobs stayed under the filter `succeeded`.*"""
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs?state=failed&capability=demo.fail")
    await dashboard.tab.until(f"{ROWS} > 2")
    path = re.compile(r"/v1/jobs\?.*state=succeeded")
    body = '{"detail": "The store is busy."}'

    async def busy(route):
        await route.fulfill(status=503, body=body, content_type="application/json")

    await dashboard.tab.page.route(path, busy)
    await dashboard.tab.press("/")
    await dashboard.tab.evaluate("document.getElementById('query').value = ''")
    await dashboard.tab.type("state:succeeded")
    await dashboard.tab.press("Enter")
    await dashboard.shows("The store is busy.", ".notice.bad")
    assert 0 == await dashboard.tab.evaluate(ROWS)
    await dashboard.tab.page.unroute(path)
    await submit(dashboard, 1, "demo.echo")
    await dashboard.tab.until(
        f"{ROWS} > 0 && !document.querySelector('tbody .state:not(.succeeded)')"
    )
    dashboard.tab.messages.clear()  # the browser reports the 503
    dashboard.tab.errors.clear()


async def test_reads_that_events_cause_may_share_answers(dashboard):
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs")
    await dashboard.tab.until(f"{ROWS} > 2")

    def is_shared(request):
        asked = "/v1/jobs?" in request.url
        return asked and "max-age=1" == request.headers.get("cache-control")

    async with dashboard.tab.page.expect_request(is_shared):
        await submit(dashboard, 1, "demo.echo")


async def test_keys_do_nothing_while_the_rows_are_those_of_the_former_filter(dashboard):
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs?state=failed")
    await dashboard.tab.until(f"{ROWS} > 2")
    await dashboard.tab.press("j")
    await dashboard.tab.until(f"{CURRENT} === 0")
    gate = asyncio.Event()

    async def late(route):
        await gate.wait()
        await route.continue_()

    path = re.compile(r"/v1/jobs\?.*state=succeeded")
    await dashboard.tab.page.route(path, late)
    await dashboard.click("succeeded", ".chips button")
    await dashboard.tab.until("document.querySelector('.jobs.stale')")
    for key in ("j", "x", "r"):
        await dashboard.tab.press(key)
    assert 0 == await dashboard.tab.evaluate(PICKED)
    assert not await dashboard.tab.evaluate("document.querySelector('dialog')")
    gate.set()
    await dashboard.tab.until("!document.querySelector('.jobs.stale')")
    await dashboard.tab.page.unroute(path)


async def test_a_span_beyond_all_times_is_a_mistake(dashboard):
    """*Before: the view stayed blank.*"""
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs?since=9999999999d")
    await dashboard.shows("“since” must be an age")
    dashboard.check_quiet()


async def test_times_are_those_of_the_reader_and_keep_their_offset(dashboard):
    """*Before: a date was of UTC, and an address meant another time elsewhere.*"""
    await dashboard.log_in(tenant="birds")
    zone = "Emulation.setTimezoneOverride"
    await dashboard.tab.send(zone, timezoneId="Asia/Kolkata")
    await dashboard.visit("jobs")
    await dashboard.tab.until(f"{ROWS} > 2")
    await dashboard.tab.press("/")
    await dashboard.tab.type("since:2020-01-31")
    pattern = re.compile(r"/v1/jobs\?.*since=2020-01-30T18(%3A|:)30")
    async with dashboard.tab.page.expect_request(pattern):
        await dashboard.tab.press("Enter")
    await dashboard.tab.until(
        "new URLSearchParams(location.search).get('since') === '2020-01-31T00:00+05:30'"
    )
    await dashboard.tab.send(zone, timezoneId="")


TYPED = "document.getElementById('query').value"
OFFERED = "[...document.querySelectorAll('[role=option]')].map(one => one.innerText)"


async def test_the_query_box_completes_fields_and_values(dashboard):
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs")
    await dashboard.tab.until(f"{ROWS} > 2")
    await dashboard.tab.press("/")
    await dashboard.tab.page.keyboard.type("st")
    await dashboard.tab.until(f"{OFFERED}.join() === 'state:'")
    await dashboard.tab.press("ArrowDown")
    await dashboard.tab.until("document.querySelector('[aria-selected=true]')")
    await dashboard.check("jobs completion")
    await dashboard.tab.press("Enter")
    await dashboard.tab.until(f"{TYPED} === 'state:' && {OFFERED}.length === 8")
    await dashboard.tab.page.keyboard.type("failed,su")
    await dashboard.tab.until(f"{OFFERED}.join() === 'succeeded'")
    await dashboard.tab.press("ArrowDown")
    await dashboard.tab.press("Enter")
    await dashboard.tab.until(f"{TYPED} === 'state:failed,succeeded '")
    await dashboard.tab.press("Enter")
    await dashboard.tab.until("location.search === '?state=failed,succeeded'")
    dashboard.check_quiet()


async def test_completions_are_closed_by_escape_and_chosen_by_a_click(dashboard):
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs")
    await dashboard.tab.until(f"{ROWS} > 2")
    await dashboard.tab.press("/")
    await dashboard.tab.page.keyboard.type("capability:sle")
    await dashboard.tab.until(f"{OFFERED}.join() === 'demo.sleep'")
    await dashboard.tab.press("Escape")
    await dashboard.tab.until(f"{OFFERED}.length === 0")
    assert "query" == await dashboard.tab.evaluate("document.activeElement.id")
    await dashboard.tab.press("ArrowUp")
    await dashboard.tab.until(f"{OFFERED}.join() === 'demo.sleep'")
    await dashboard.click("demo.sleep", "[role=option]")
    await dashboard.tab.page.keyboard.type("queue:de")
    await dashboard.tab.until(f"{OFFERED}.includes('demo')")
    await dashboard.tab.press("Escape")
    await dashboard.tab.page.keyboard.type("mo")
    await dashboard.tab.press("Enter")
    await dashboard.tab.until("location.search === '?capability=demo.sleep&queue=demo'")


async def test_a_bulk_cancel_says_how_many_jobs_it_can_reach(dashboard):
    """*Before: it promised to cancel all, and cancelled only those of the caller.*"""
    later = dashboard.server.backburner.engine.now() + 3_600_000
    run_at = datetime.fromtimestamp(later / 1000, UTC)
    ann, own = Owner("crows", "ann"), Owner("crows", "1")
    await submit(dashboard, 40, "demo.echo", ann, run_at=run_at)
    await submit(dashboard, 20, "demo.echo", own, run_at=run_at)
    scopes = frozenset({"jobs:read", "jobs:write", "tenant:read"})
    made, text = await dashboard.server.backburner.keys.create(
        NewKey("clerk", scopes), Actor("t", "crows")
    )
    await dashboard.log_in(key=(made.id, text))
    await dashboard.visit("jobs?state=scheduled")
    await dashboard.tab.until(f"{ROWS} === 50")
    await dashboard.tab.click("thead input")
    await dashboard.click("Cancel", ".bulk button.danger")
    await dashboard.shows("only your own jobs: 20 of the 50.", "dialog")
    await dashboard.click("Go back", "dialog button")
    await dashboard.click("Select all 60 matching")
    await dashboard.click("Cancel", ".bulk button.danger")
    await dashboard.shows("only your own jobs: 20 of the 60.", "dialog")
    await dashboard.click("Cancel my jobs", "dialog button")
    await dashboard.shows("20 jobs cancelled, 0 skipped.")
    await dashboard.visit("jobs?state=scheduled&user=ann")
    await dashboard.tab.until(f"{ROWS} === 40")
    await dashboard.tab.click("thead input")
    await dashboard.shows("40 selected")
    assert not await dashboard.tab.evaluate("document.querySelector('.bulk .danger')")


async def test_an_administrator_cancels_the_jobs_of_all_users(dashboard):
    later = dashboard.server.backburner.engine.now() + 3_600_000
    run_at = datetime.fromtimestamp(later / 1000, UTC)
    await submit(dashboard, 55, "demo.echo", Owner("rooks", "ann"), run_at=run_at)
    await dashboard.log_in(tenant="rooks")
    await dashboard.visit("jobs?state=scheduled&user=ann")
    await dashboard.tab.until(f"{ROWS} === 50")
    await dashboard.tab.click("thead input")
    await dashboard.click("Select all 55 matching")
    await dashboard.click("Cancel", ".bulk button.danger")
    await dashboard.click("Cancel all 55 matching jobs", "dialog button")
    await dashboard.shows("55 jobs cancelled, 0 skipped.")


FILLED = """
document.getElementById('query').value = %r
document.getElementById('query').focus()
"""


async def test_jobs_are_found_by_metadata(dashboard):
    pairs = {"order": "A-1042", "a note": 'of "ann": C:\\new', "odd": "\u202e\n:"}
    await submit(dashboard, 1, "demo.echo", metadata=pairs)
    await submit(dashboard, 2, "demo.echo", metadata={"order": "A-1042"})
    await submit(dashboard, 1, "demo.echo", metadata={"order": "A 7", "by:": "x:"})
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs")
    await dashboard.tab.until(f"{ROWS} >= 4")
    for typed, rows, kept in (
        ("metadata:order=A-1042", 3, "metadata:order=A-1042"),
        ('metadata:order="A 7" sort:oldest', 1, 'metadata:"order=A 7" sort:oldest'),
        ('metadata:"order=A 7" metadata:by:=x:', 1, None),
        ("metadata:order=A", 0, None),
        ('metadata:"a note=of \\"ann\\": C:\\\\new" metadata:order=A-1042', 1, None),
        ('metadata:"odd=\\u202e\\n:"', 1, None),
    ):
        await dashboard.tab.evaluate(FILLED % typed)
        await dashboard.tab.press("Enter")
        await dashboard.tab.until(
            f"{ROWS} === {rows} && !document.querySelector('.stale')"
        )
        await dashboard.tab.evaluate("document.getElementById('query').blur()")
        assert (kept or typed) == await dashboard.tab.evaluate(TYPED)
        # What the box contains means what the address means.
        address = await dashboard.tab.evaluate("location.search")
        await dashboard.tab.evaluate(FILLED % (kept or typed))
        await dashboard.tab.press("Enter")
        assert address == await dashboard.tab.evaluate("location.search")
    await dashboard.tab.evaluate(FILLED % "metadata:order")
    await dashboard.tab.press("Enter")
    await dashboard.shows("“order” is not a pair")
    dashboard.check_quiet()


async def test_the_query_box_completes_pairs_of_metadata(dashboard):
    await submit(dashboard, 1, "demo.echo", metadata={"order": 'B "7"', "by:": "x:"})
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs")
    await dashboard.tab.until(f"{ROWS} > 0")
    await dashboard.tab.press("/")
    await dashboard.tab.page.keyboard.type("me")
    await dashboard.tab.until(f"{OFFERED}.join() === 'metadata:'")
    await dashboard.tab.press("ArrowDown")
    await dashboard.tab.press("Enter")
    await dashboard.tab.until(f"{OFFERED}.length > 1")
    await dashboard.tab.page.keyboard.type('"order=B')
    await dashboard.tab.until(f"""{OFFERED}.join() === 'order=B "7"'""")
    await dashboard.tab.press("ArrowDown")
    await dashboard.tab.press("Enter")
    await dashboard.tab.page.keyboard.type("metadata:by")
    await dashboard.tab.until(f"{OFFERED}.join() === 'by:=x:'")
    await dashboard.tab.press("ArrowDown")
    await dashboard.tab.press("Enter")
    typed = 'metadata:"order=B \\"7\\"" metadata:by:=x: '
    assert typed == await dashboard.tab.evaluate(TYPED)
    await dashboard.tab.press("Enter")
    await dashboard.tab.until(f"{ROWS} === 1")
    dashboard.check_quiet()


async def test_a_bulk_action_reaches_what_metadata_finds(dashboard):
    later = datetime(2100, 1, 1, tzinfo=UTC)
    both = {"bulk": "a b", "part": "1"}
    owner, some = Owner("birds", "1"), {"bulk": "a b"}
    await submit(dashboard, 60, "demo.echo", owner, run_at=later, metadata=both)
    await submit(dashboard, 1, "demo.echo", owner, run_at=later, metadata=some)
    await dashboard.log_in(tenant="birds")
    await dashboard.visit("jobs?metadata=bulk%3Da+b&metadata=part%3D1")
    await dashboard.tab.until(f"{ROWS} === 50")
    await dashboard.shows("60 match")
    await dashboard.tab.click("thead input")
    await dashboard.click("Select all 60 matching")
    await dashboard.click("Cancel", ".bulk button.danger")
    await dashboard.click("Cancel all 60 matching jobs", "dialog button.danger")
    await dashboard.shows("60 cancelled, 0 skipped")
    dashboard.check_quiet()
