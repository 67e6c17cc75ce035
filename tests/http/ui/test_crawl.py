"""A crawler over the dashboard: every view and three users' jobs, with every role."""

import re
from pathlib import Path

import pytest

from backburner import http
from backburner.domain.auth.access import ROLES, Role
from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import Options

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAIN = Path(http.__file__).parent / "pages" / "ui" / "main.js"
VIEWS = re.findall(r"\bpath: '(\w+)'", MAIN.read_text())
ANN, BOB, CAT = Owner("acme", "ann"), Owner("acme", "bob"), Owner("other", "cat")

CALLERS = {
    Role.USER: ("acme", "ann", {ANN}),
    Role.TENANT_OPERATOR: ("acme", None, {ANN, BOB}),
    Role.TENANT_ADMINISTRATOR: ("acme", None, {ANN, BOB}),
    Role.PLATFORM_OPERATOR: ("default", None, set()),
    Role.PLATFORM_ADMINISTRATOR: ("default", None, set()),
}
"""The tenant and user of each role's key, and whose things it sees."""
NEEDS = {
    "jobs:write": {"Cancel", "Change", "Fork"},
    "dead-letters:retry": {"Retry", "Retry in stages"},
    "queues:admin": {"Pause", "Resume", "Drain", "Run now", "New schedule", "Delete"},
    "keys:admin": {"New key", "Revoke"},
    "budgets:admin": {"New budget"},
}
"""Controls, by the scope without which nobody is shown them."""
CONTROLS = """
[...document.querySelectorAll('main button, dialog button')].map(one =>
  one.innerText.trim())
"""


QUIET = """
new Promise(done => {
  const look = () => {
    const ends = performance.getEntriesByType('resource').map(one => one.responseEnd)
    const last = Math.max(0, ...ends)
    performance.now() - last > 300 ? done(true) : setTimeout(look, 50)
  }
  look()
})
"""
"""Is fulfilled when nothing was answered for a while."""


async def jobs_of(dashboard, owner):
    """Make a job that waits and one that failed, both bearing the user's word."""
    engine = dashboard.server.backburner.engine
    tags = [f"word-of-{owner.user}"]
    later = await engine.submit(
        "test.wait", {"failures": 0}, Options(owner=owner, tags=tags)
    )
    made = await engine.submit("ui.hostile", {}, Options(owner=owner, tags=tags))
    await engine.wait(made.id, owner, timeout=60)
    return [later.id, made.id]


async def settled(dashboard):
    """Wait until the view is there and has read what it shows."""
    await dashboard.tab.until("document.querySelector('main h1')")
    await dashboard.tab.evaluate(QUIET)


@pytest.mark.thorough
async def test_no_role_is_shown_others_things_or_controls_that_it_may_not_use(
    dashboard,
):
    things = {owner: await jobs_of(dashboard, owner) for owner in (ANN, BOB, CAT)}
    odd, seen = [], set()
    for role, (tenant, user, sees) in CALLERS.items():
        await dashboard.log_in(role, tenant=tenant, user=user)
        beyond = set().union(
            *(words for scope, words in NEEDS.items() if scope not in ROLES[role])
        )
        paths = VIEWS + [f"jobs/{job}" for ids in things.values() for job in ids]
        for path in paths:
            await dashboard.visit(path)
            await settled(dashboard)
            page = await dashboard.tab.evaluate("document.documentElement.outerHTML")
            controls = set(await dashboard.tab.evaluate(CONTROLS))
            seen |= controls
            odd += [f"{role} is offered {one} at {path}" for one in controls & beyond]
            odd += [
                f"{role} is shown {owner.user}'s things at {path}"
                for owner in set(things) - sees
                if f"word-of-{owner.user}" in page
            ]
            if path in {f"jobs/{job}" for owner in sees for job in things[owner]}:
                assert "There is no such job" not in page, (role, path)
    assert [] == odd
    assert {"Cancel", "Retry", "Fork", "Pause", "Drain"} <= seen, (
        "they are shown to somebody"
    )
