"""Names that somebody chose are shown as text in every view, whatever is in them."""

from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from backburner import Budget, PermanentError, RetryPolicy, capability
from backburner.domain.auth.access import ROLES, Role
from backburner.domain.jobs.job import Owner
from backburner.domain.lanes.lane import Lane
from backburner.domain.queues.schedule import ScheduleState
from backburner.engine.access.keys import Actor, NewKey
from backburner.engine.submit.submission import Options
from backburner.ports.store.workers import WorkerInfo
from tests.http.ui.conftest import HOSTILE, a_dashboard

pytestmark = pytest.mark.asyncio(loop_scope="module")

MARKUP = '<img src=x onerror="window.isBroken=1">'
"""What a queue may be called: it has no control characters."""
SHOWN = "⟨202E⟩"
WIDE = "wide" * 20
ANN = Owner("default", HOSTILE)
FAR = 4_000_000_000_000
BROKEN = """
[...document.querySelectorAll('*')].flatMap(one => {
  const texts = [...one.childNodes].filter(each => each.nodeType === 3)
  const told = [...one.attributes].filter(each => !each.name.startsWith('data-'))
  const all = [...texts, ...told].map(each => each.data ?? each.value)
  const bad = all.filter(text => /[\\u001b\\u202e]/.test(text))
  return one.localName === 'img' ? [one.outerHTML, ...bad] : bad
})
"""
"""Elements that a name made, and texts with characters that change how others look."""


@capability(MARKUP, queue=MARKUP, retry=RetryPolicy(max_attempts=1))
async def odd(ctx, value: dict[str, Any]) -> Any:
    """Use a model with such a name; fail or ask."""
    ctx.used(HOSTILE, input_tokens=900, output_tokens=100)
    await ctx.step(HOSTILE, lambda: HOSTILE)
    if value.get("asks"):
        return await ctx.ask_person(HOSTILE, choices=[HOSTILE, "no"])
    raise PermanentError(HOSTILE, code=MARKUP[:20])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def dashboard(tmp_path_factory, axe):  # noqa: ARG001 - it may skip
    folder = tmp_path_factory.mktemp("ui")
    store = f"sqlite:///{folder}/jobs.db"
    async with a_dashboard(store, [odd], lease_seconds=3600) as dashboard:
        await fill(dashboard)
        await dashboard.log_in("platform-administrator", tenant="default")
        yield dashboard


async def fill(dashboard):
    """Give everything a hostile name that can have one."""
    backburner = dashboard.server.backburner
    engine, store = backburner.engine, backburner.engine.store
    week = timedelta(days=7)
    await engine.budgets.put(Budget("user", tokens=1000, per=week, of=HOSTILE))
    options = Options(owner=ANN, tags=[MARKUP], metadata={MARKUP: HOSTILE})
    failed = await engine.submit(MARKUP, {}, options)
    await engine.wait(failed.id, ANN, timeout=60)
    asking = await engine.submit(MARKUP, {"asks": True}, options)
    async for event in engine.events(await engine.find(asking.id, ANN), after=0):
        if event.type == "job.waiting":
            break
    await store.enlist(WorkerInfo(HOSTILE, HOSTILE, 1, 8, (MARKUP, WIDE), 0))
    await store.declare_lanes([Lane(MARKUP, 50), Lane(WIDE, 50)])
    await store.save_schedule(
        ScheduleState(*(HOSTILE, MARKUP, "0 3 1 1 *", "UTC", "skip", FAR), paused=True)
    )
    wanted = NewKey(MARKUP, ROLES[Role.USER])
    await backburner.keys.create(wanted, Actor(HOSTILE, "default"))
    dashboard.job = failed.id


PLACES = {
    "overview": (".attention", MARKUP),
    "jobs": ("tbody", SHOWN),
    "jobs/JOB": (".facts", SHOWN),
    "jobs/JOB?tab=Steps": ("#panel", SHOWN),
    "questions": (".question", SHOWN),
    "incidents": ("tbody", SHOWN),
    "lanes": ("tbody", MARKUP),
    "cost": ("main", SHOWN),
    "fleet": ("[aria-label=Workers]", SHOWN),
    "admin": ("tbody", MARKUP),
}
"""Where a hostile name is in each view."""


@pytest.mark.parametrize("view", PLACES)
async def test_a_hostile_name_is_text(dashboard, view):
    place, text = PLACES[view]
    await dashboard.visit(view.replace("JOB", dashboard.job))
    await dashboard.shows(text, place)
    if view == "fleet":
        await dashboard.shows(SHOWN, "[aria-label=Schedules]")
        await dashboard.shows(MARKUP, "[aria-label=Queues]")

    assert [] == await dashboard.tab.evaluate(BROKEN)
    assert not await dashboard.tab.evaluate("window.isBroken")
    await dashboard.check(f"hostile {view.replace('/', ' ')}")


async def test_a_hostile_name_that_is_put_unchanged_is_found(dashboard):
    """The check itself."""
    await dashboard.visit("jobs")
    await dashboard.shows(SHOWN, "tbody")
    for put in (
        "document.body.append('\\u202e')",
        "document.body.append(document.createElement('img'))",
        "document.body.setAttribute('title', '\\u001b')",
    ):
        await dashboard.tab.evaluate(f"void {put}")
        assert [] != await dashboard.tab.evaluate(BROKEN), put
        await dashboard.tab.evaluate(
            "document.body.removeAttribute('title') ?? document.body.lastChild.remove()"
        )
