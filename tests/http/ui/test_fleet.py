"""Fleet: sorted queues, schedules in words, pages of deliveries, in a real browser."""

import asyncio
import json

import pytest

from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import Options

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN = Owner("default", "ann")
QUEUES = "[aria-label=Queues]"
SCHEDULES = "[aria-label=Schedules]"
DELIVERIES = "[aria-label='Webhook deliveries']"
SORTED = (
    "document.querySelector('[aria-label=Queues] th[aria-sort]')"
    "?.getAttribute('aria-sort') ?? ''"
)


def names(label):
    """Return an expression for the first cell of each row of a table."""
    return (
        f"[...document.querySelectorAll({json.dumps(label)} + ' tbody tr')]"
        ".map(row => row.querySelector('td').innerText.trim().split(/\\s/)[0])"
    )


async def are(dashboard, label, expected):
    """Wait until a table has these rows, in this order."""
    await dashboard.tab.until(f"{names(label)}.join() === {json.dumps(expected)}")


DEMO = (
    "[...document.querySelectorAll('[aria-label=Queues] tbody tr')]"
    ".find(row => row.innerText.startsWith('demo')).innerText"
)
ALL = "backburner.bulk,backburner.deliveries,demo"
BUSIEST = "demo,backburner.bulk,backburner.deliveries"


async def limit(route):
    """Answer as if `demo` were declared with limits, which are reached."""
    answer = await route.fetch()
    found = await answer.json()
    for queue in found["items"]:
        if queue["name"] == "demo":
            queue |= {"concurrency": 2, "limited_until": "2099-01-01T00:00:00Z"}
    await route.fulfill(json=found)


async def test_queues_say_what_waits_in_them_and_what_limits_them(dashboard):
    engine = dashboard.server.backburner.engine
    asking = {"question": "Send it?"}
    await engine.submit_many([("ui.ask", asking, Options(owner=ANN))])
    await engine.submit_many([("test.wait", {}, Options(owner=ANN))] * 2)
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.tab.page.route("**/v1/queues", limit)
    await dashboard.visit("fleet")
    await dashboard.shows("limit reached: 2 running", QUEUES)
    await dashboard.shows("rate limit: next in", QUEUES)
    # Queued 0, running 2, scheduled 0, waiting 1.
    await dashboard.tab.until(f"/^demo\\s+0\\s+2\\s+0\\s+1\\s/.test({DEMO})")
    await dashboard.check("fleet limited")
    await dashboard.tab.page.unroute_all()
    dashboard.check_quiet()


async def test_queues_are_sorted_and_filtered_and_stay_in_place(dashboard):
    engine = dashboard.server.backburner.engine
    await engine.submit_many([("test.wait", {}, Options(owner=ANN))])
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("fleet")
    await are(dashboard, QUEUES, ALL)
    await dashboard.tab.until(f"/^demo\\s+0\\s+[1-9]/.test({DEMO})")
    assert "ascending" == await dashboard.tab.evaluate(SORTED)
    await dashboard.click("Running", "th button")
    await are(dashboard, QUEUES, BUSIEST)
    await dashboard.click("Only queues with jobs")
    await are(dashboard, QUEUES, "demo")
    found = await dashboard.tab.evaluate("location.search")
    assert {"?sort=-running", "busy=1"} == {*found.split("&")}
    await dashboard.tab.reload()
    await are(dashboard, QUEUES, "demo")
    assert "descending" == await dashboard.tab.evaluate(SORTED)
    await dashboard.check("fleet sorted")
    await dashboard.click("Only queues with jobs")
    await are(dashboard, QUEUES, BUSIEST)
    # Rows stay while numbers change, until somebody sorts again.
    dashboard.server.release.set()
    await dashboard.tab.until(f"/^demo\\s+0\\s+0\\s/.test({DEMO})")
    await are(dashboard, QUEUES, BUSIEST)
    await dashboard.click("Sort again")
    await are(dashboard, QUEUES, ALL)
    # The button is hidden; the browser takes its focus away with the next frame.
    await dashboard.tab.until("document.activeElement === document.body")
    await dashboard.tab.press("j")
    await dashboard.tab.press("j")
    await dashboard.tab.press("Enter")
    await dashboard.tab.until("location.search === '?queue=backburner.deliveries'")
    dashboard.check_quiet()


async def test_a_schedule_says_when_it_fires_and_how_its_last_job_ended(dashboard):
    engine = dashboard.server.backburner.engine
    asked = {"capability": "demo.echo", "input": {}, "timezone": "Europe/Berlin"}
    _, key = await dashboard.key("platform-administrator", "default")
    shown = dashboard.server.shown(key)
    for name, cron in (("nightly", "0 3 * * 1-5"), ("odd", "*/7 3 * * *")):
        path = f"/v1/schedules/{name}"
        answer = await dashboard.server.client.put(
            path, json={**asked, "cron": cron}, headers=shown
        )
        assert 200 == answer.status_code, answer.text
    ticks = answer.json()["next_ticks"]
    now, _ = await engine.store.schedules()
    for paused in (True, False):
        await engine.store.pause_schedule("nightly", paused=paused, next_at=now)
    await engine.scheduler.fire()
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("fleet")
    await dashboard.shows("every Monday to Friday at 03:00", SCHEDULES)
    await dashboard.shows("*/7 3 * * * Europe/Berlin", SCHEDULES)
    times = "[...document.querySelectorAll('tr:nth-child(2) .tick time')]"
    assert ticks == await dashboard.tab.until(
        f"{times}.length === 3 && {times}.map(time => time.dateTime)"
    )
    zone = await dashboard.tab.evaluate(
        "Intl.DateTimeFormat().resolvedOptions().timeZone"
    )
    await dashboard.shows(f"Next ({zone})", f"{SCHEDULES} thead")
    await dashboard.shows("succeeded", f"{SCHEDULES} .last a")
    await dashboard.check("fleet with schedules")
    await dashboard.click("nightly", f"{SCHEDULES} a")
    await dashboard.tab.until("location.search === '?tag=schedule:nightly'")
    await dashboard.shows("demo.echo", "[aria-label=Jobs]")
    await dashboard.check("jobs of a schedule")
    dashboard.check_quiet()


async def fail_deliveries(dashboard, count):
    """Submit jobs whose webhooks cannot be sent, until they have failed."""
    client = dashboard.server.client
    _, key = await dashboard.key("user", tenant="default", user="ann")
    shown = dashboard.server.shown(key)
    callback = {"url": "https://hooks.example/heron"}
    endpoint = await client.post("/v1/endpoints", json=callback, headers=shown)
    disabled = f"/v1/endpoints/{endpoint.json()['id']}/disable"
    assert 200 == (await client.post(disabled, headers=shown)).status_code
    body = {"capability": "demo.echo", "input": {}, "callback": callback}
    engine = dashboard.server.backburner.engine
    for _ in range(count):
        made = await client.post("/v1/jobs", json=body, headers=shown)
        assert 202 == made.status_code, made.text
        where = f"/v1/jobs/{made.json()['id']}/deliveries"
        await engine.wait(made.json()["id"], ANN, timeout=60)
        [sent] = (await client.get(where, headers=shown)).json()["items"]
        await engine.wait(sent["id"], ANN, timeout=60)
    return made.json()["id"]


async def test_deliveries_have_pages_and_new_ones_wait_for_a_button(dashboard):
    oldest = await fail_deliveries(dashboard, 1)
    await fail_deliveries(dashboard, 24)
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.visit("fleet")
    count = f"document.querySelectorAll({json.dumps(DELIVERIES)} + ' tbody tr').length"
    await dashboard.tab.until(f"{count} === 20")
    before = await dashboard.tab.evaluate(names(DELIVERIES))
    await fail_deliveries(dashboard, 1)
    await dashboard.shows("Show 1 new", ".fresh")
    assert before == await dashboard.tab.evaluate(names(DELIVERIES)), "no row has moved"
    await dashboard.click("Next page")
    await dashboard.shows(oldest, DELIVERIES)
    assert 5 == await dashboard.tab.evaluate(count)
    await dashboard.check("fleet deliveries page 2")
    await dashboard.click("Previous page")
    await dashboard.tab.until(f"{count} === 20")
    await dashboard.click("job_", f"{DELIVERIES} td:nth-child(3) a")
    await dashboard.tab.until("location.pathname.startsWith('/ui/jobs/job_')")
    await dashboard.shows("demo.echo", "main")
    dashboard.check_quiet()


PLACES = """
window.places = {}
const look = () => {
  for (const one of document.querySelectorAll('h2'))
    (window.places[one.innerText] ??= []).push(one.offsetTop)
  requestAnimationFrame(look)
}
look()
"""
"""Notes where the headings are in each frame."""


FRAMES = """
new Promise(done => {
  let left = 30
  const next = () => (left-- ? requestAnimationFrame(next) : done())
  next()
})
"""


async def test_no_part_of_fleet_moves_while_others_are_read(dashboard):
    """*Before: empty tables, and those of deliveries, pushed the others down.*"""
    held = asyncio.Event()

    async def answer_late(route):
        await held.wait()
        await route.continue_()

    await dashboard.log_in("platform-administrator", tenant="default")
    page = dashboard.tab.page
    await page.route("**/v1/capabilities", answer_late)
    none = {"items": []}
    await page.route("**/v1/schedules", lambda route: route.fulfill(json=none))
    await page.add_init_script(PLACES)
    async with page.expect_response("**/v1/queues"):
        await dashboard.visit("fleet")
    await dashboard.tab.evaluate(FRAMES)
    held.set()
    await dashboard.shows("There are no schedules")
    await dashboard.shows("Endpoints")
    await dashboard.tab.evaluate(FRAMES)
    places = await dashboard.tab.evaluate("window.places")
    parts = ("Queues", "Workers", "Schedules", "Webhook deliveries", "Endpoints")
    assert dict.fromkeys(parts, 1) == {name: len({*places[name]}) for name in parts}
    # A list of capabilities that cannot be read hides nothing.
    await page.unroute("**/v1/capabilities")
    await page.route("**/v1/capabilities", lambda route: route.abort())
    await dashboard.visit("fleet")
    await dashboard.shows("Endpoints")
    await page.unroute_all()
    dashboard.forget_errors()


WORDS = {
    "* * * * *": "every minute",
    "*/15 * * * 1-5": "every 15 minutes, on Monday to Friday",
    "0,30 * * * *": "every hour at :00 and :30",
    "15 */6 * * *": "every 6 hours at :15",
    "0 3 * * *": "every day at 03:00",
    "30 9,17 * * MON-FRI": "every Monday to Friday at 09:30 and 17:30",
    "0 9 * * 0,7": "every Sunday at 09:00",
    "0 0 1,15 * *": "every month on days 1 and 15 at 00:00",
    "30 4 1 JAN *": "every year on 1 January at 04:30",
    # Not even, both a date and a weekday, or nothing that cron knows: no words.
    "*/7 * * * *": None,
    "*/60 * * * *": None,
    "0 3 1 * 1": None,
    "*/30 * * * * *": "every 30 seconds",
    "30 * * * * *": None,
    "0 9 * * 1,3-5": None,
    "0 9 * * MON-WED,FRI": None,
    "0 0 * * 0-7": None,
    "0-5 3 * * *": None,
    "0 9 * * 1#2": None,
    "60 3 * * *": None,
    "0 3 * *": None,
    "<b>": None,
}
LEAST = (
    ({"type": "object", "properties": {"a": {"type": "string"}}}, {}),
    (
        {
            "$defs": {"K": {"enum": ["x", "y"]}},
            "type": "object",
            "required": ["k", "n", "l", "t"],
            "properties": {
                "k": {"$ref": "#/$defs/K"},
                "n": {"type": "integer", "minimum": 3},
                "l": {"type": "array", "minItems": 1, "items": {"type": "boolean"}},
                "t": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
        },
        {"k": "x", "n": 3, "l": [False], "t": "text"},
    ),
    (True, None),
)


async def test_cron_is_told_in_words_and_schemas_have_a_smallest_value(dashboard):
    await dashboard.log_in("platform-administrator", tenant="default")
    for module, function, cases in (
        ("schedules", "inWords", WORDS.items()),
        ("parts", "least", LEAST),
    ):
        given = json.dumps([case for case, _ in cases])
        found = await dashboard.tab.evaluate(
            f"import('/ui/{module}.js')"
            f".then(made => {given}.map(one => made.{function}(one)))"
        )
        assert [expected for _, expected in cases] == found
