"""Nothing moves by itself while jobs run: Chromium's own measure of layout shifts."""

import json

import pytest
import pytest_asyncio

from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import Options
from tests import homes
from tests.http.ui.conftest import broken

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.parametrize(
        "store_of_file", homes.STORES, indirect=True, scope="module"
    ),
]

ANN = Owner("terns", "ann")
OWN = Owner("terns", "1")
MOST = 0.01
"""So little counts if a tenth of the window moves by a tenth of its height."""
WATCH = """
window.shifts = []
window.watch = new PerformanceObserver(list => note(list.getEntries()))
window.note = entries => entries.forEach(one => shifts.push({
  value: one.value,
  input: one.hadRecentInput,
  what: one.sources.map(each => {
    const node = each.node?.nodeType === 1 ? each.node : each.node?.parentElement
    const [from, to] = [each.previousRect, each.currentRect]
    return `${node?.outerHTML?.slice(0, 120)}: ${from.x},${from.y} to ${to.x},${to.y}`
  }),
}))
window.watch.observe({type: 'layout-shift'})
"""
DRAWN = """
new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>
  setTimeout(() => { note(watch.takeRecords()); done(shifts) }))))
"""
PUSH = """{
  const found = document.createElement('div')
  found.style.height = '200px'
  document.querySelector('main').prepend(found)
}"""


async def submit(dashboard, count, capability="demo.echo", value=None):
    """Submit some jobs and wait until they have ended."""
    engine = dashboard.server.backburner.engine
    wanted = [(capability, value or {}, Options(owner=ANN))] * count
    made = await engine.submit_many(wanted)
    for one in made:
        await engine.wait(one.id, ANN, timeout=60)
    return made[-1].id


async def watched(dashboard, path):
    """Open a view; note what moves from when it has read what it shows."""
    await dashboard.visit(path)
    await dashboard.tab.until("document.querySelector('main h1')")
    await dashboard.calm()
    await dashboard.tab.evaluate(WATCH)


async def shifts(dashboard):
    """Return how much moved by itself, and what."""
    found = await dashboard.tab.evaluate(DRAWN)
    moved = [one for one in found if not one["input"]]
    return sum(one["value"] for one in moved), json.dumps(moved, indent=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(dashboard):
    """A page of somebody who sees all views of a tenant with a few jobs."""
    await dashboard.count_requests()
    broken["cause"] = True
    await submit(dashboard, 1, "ui.flaky")
    await submit(dashboard, 3)
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.tab.evaluate("sessionStorage['backburner-tenant'] = 'terns'")
    return dashboard


ENDED = {
    "overview": "document.querySelector('.attention').innerText.includes('POISON')",
    "jobs": "document.querySelector('.fresh').innerText.includes('15')",
    "incidents": "document.querySelector('.fresh').innerText.includes('1')",
    "fleet": "document.querySelector('[aria-label=Queues]').innerText !== before",
}
"""How each view shows that it has followed the jobs."""


@pytest.mark.parametrize("view", ENDED)
async def test_a_view_stands_still_while_jobs_run(page, view):
    causes = {"overview": {"poison": True}}
    steps = {"title": "herons", "reader": "Ann"}
    await watched(page, view)
    await page.tab.evaluate(
        "window.before = document.querySelector('[aria-label=Queues]')?.innerText"
    )
    for capability, value in (
        ("demo.echo", {}),
        ("ui.flaky", causes.get(view, {})),
        ("ui.steps", steps),
        ("ui.dear", {"fails": 9 if view == "incidents" else 0}),
        ("demo.echo", {}),
    ):
        await submit(page, 3, capability, value)
    await page.tab.until(ENDED[view])
    await page.calm()
    moved, what = await shifts(page)

    assert moved <= MOST, what


async def test_the_page_of_a_job_stands_still_while_it_runs(page):
    engine = page.server.backburner.engine
    value = {"text": "The heron waits for a fish. " * 40, "seconds": 3}
    made = await engine.submit("demo.write", value, Options(owner=OWN))
    await watched(page, f"jobs/{made.id}")
    await page.shows("The heron", ".writing")
    await page.shows("succeeded", "h1")
    await page.calm()
    moved, what = await shifts(page)

    assert moved <= MOST, what


async def test_a_flow_stands_still_while_it_runs(page):
    steps = [
        {"name": "wait", "capability": "test.wait", "input": {}},
        *(
            {"name": f"part {n}", "capability": name, "needs": ["wait"], "input": {}}
            for n, name in enumerate(["demo.echo", "ui.flaky", "demo.echo"])
        ),
        {"name": "last", "capability": "demo.echo", "needs": ["part 0"], "input": {}},
    ]
    made = await page.submit(
        "/v1/flows", {"steps": steps}, "user", tenant="terns", user="ann"
    )
    await page.tab.open("about:blank")
    await watched(page, f"flows/{made['id']}")
    page.server.release.set()
    await page.shows("failed", "h1")
    page.server.release.clear()
    await page.calm()
    moved, what = await shifts(page)

    assert moved <= MOST, what


async def test_what_moves_by_itself_is_seen(page):
    """The measure itself: something is put above what a view shows."""
    await watched(page, "overview")
    await page.tab.evaluate(PUSH)
    moved, _ = await shifts(page)

    assert moved > MOST
