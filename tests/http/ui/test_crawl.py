"""
A crawler over the dashboard: every view and three users' things, with many keys.

Whatever has a text has a word of its owner, so that the crawler sees whose things a
page shows. Another test plants leaks and controls, which the same crawler must find.
"""

import json
import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from backburner import Budget, http
from backburner.domain.auth.access import ROLES, Role
from backburner.domain.jobs.job import Owner
from backburner.engine.access.keys import Actor, NewKey
from tests import homes

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.parametrize(
        "store_of_file", homes.STORES, indirect=True, scope="module"
    ),
]

MAIN = Path(http.__file__).parent / "pages" / "ui" / "main.js"
VIEWS = re.findall(r"\bpath: '(\w+)'", MAIN.read_text())
PARTS = ["admin/audit", "admin/configuration", "playground/documents"]
TABS = ["Input", "Output", "Steps", "Events"]
ANN, BOB = Owner("acme", "ann-user"), Owner("acme", "bob-user")
CAT = Owner("cat-tenant", "cat-user")
OWNERS = (ANN, BOB, CAT)
PLATFORM = "dawn"
"""Whose word schedules have: they belong to no tenant."""
ALWAYS = {
    *("user", "tag", "error", "metadata", "model", "step", "question"),
    *("flow", "node", "batch", "member"),
}
"""What has a word of its owner, and is shown to all who may read the jobs."""
KINDS = ALWAYS | {"input", "output", "choice", "endpoint", "key"}
WORD = re.compile(r"\b(ann|bob|cat|dawn)-(\w+)\b")


@dataclass(frozen=True)
class Caller:
    """A key, and what may be shown to it: kinds of words by the name of their owner."""

    name: str
    scopes: frozenset[str]
    tenant: str
    sees: dict[str, AbstractSet[str]]
    user: str | None = None
    acts_in: str = ""

    def may_see(self, name, kind):
        return kind in self.sees.get(name, ())


HERS = {"ann": KINDS}
ACME = {"ann": KINDS, "bob": KINDS}
ASKED = dict.fromkeys(ACME, frozenset({"user", "question", "choice"}))
FLEET = {PLATFORM: {"schedule"}}
BUDGETS = dict.fromkeys(("ann", "bob", "cat"), frozenset({"user"}))
ANSWER, READ = frozenset({"questions:answer"}), frozenset({"jobs:read"})
OPERATOR = ROLES[Role.PLATFORM_OPERATOR]
ADMINISTRATOR = ROLES[Role.PLATFORM_ADMINISTRATOR]
CALLERS = (
    Caller("user", ROLES[Role.USER], "acme", HERS, user=ANN.user),
    Caller("reader of a user", READ, "acme", HERS, user=ANN.user),
    Caller("reader of nobody", READ, "acme", {}),
    Caller("reader of the tenant", READ | {"tenant:read"}, "acme", ACME),
    Caller("approver", ANSWER, "acme", ASKED),
    Caller("tenant-operator", ROLES[Role.TENANT_OPERATOR], "acme", ACME),
    Caller("tenant-administrator", ROLES[Role.TENANT_ADMINISTRATOR], "acme", ACME),
    Caller("platform-operator", OPERATOR, "default", FLEET),
    Caller(
        "platform-operator in acme", OPERATOR, "default", FLEET | ACME, None, "acme"
    ),
    Caller("platform-administrator", ADMINISTRATOR, "default", FLEET | BUDGETS),
)
WRITE, RETRY, OPERATE = {"jobs:write"}, {"dead-letters:retry"}, {"queues:admin"}
NEEDS = (
    ("", ("Cancel", "Fork", "Submit", "Get a quote", "Edit as"), WRITE),
    ("jobs", ("Change",), WRITE),
    ("", ("Retry",), RETRY),
    ("", ("Replay",), RETRY | WRITE),
    ("fleet", ("New schedule",), WRITE),
    (
        "fleet",
        ("Pause", "Resume", "Drain", "Run now", "New schedule", "Change", "Delete"),
        OPERATE,
    ),
    ("", ("Enable", "Disable"), {"webhooks:write"}),
    ("", ("New key", "Revoke", "Create the key"), {"keys:admin"}),
    ("cost", ("New", "Set", "Change", "Delete"), {"budgets:admin"}),
    ("questions", ("Answer",), {"questions:answer"} | WRITE),
    (
        "questions",
        ("ann-choice", "bob-choice", "cat-choice"),
        {"questions:answer"} | WRITE,
    ),
)
"""Where a control is, how its name begins, and the scopes of which it needs one."""
SHOWN = {
    *("Cancel", "Fork", "Submit", "Get a quote", "Retry", "Replay", "Pause", "Drain"),
    *("Run now", "New schedule", "Enable", "New key", "Revoke", "Change"),
    "cat-choice",
}
GO = "history.pushState(null, '', %s), dispatchEvent(new PopStateEvent('popstate'))"
"""Goes to an address as links do."""
SELECT = "document.querySelector('.jobs thead input')?.click()"
PAGE = """
new Promise(done => requestAnimationFrame(() => setTimeout(() => done({
  html: document.documentElement.outerHTML,
  values: [...document.querySelectorAll('input, textarea')].map(one => one.value),
  controls: [...document.querySelectorAll('main button, main a.button, dialog button')]
    .map(one => (one.getAttribute('aria-label') || one.innerText).trim()),
}))))
"""


class Crawler:
    """What a caller was shown where it should not be, and all that it was shown."""

    def __init__(self, dashboard, caller):
        self.leaks, self.controls, self.words, self.labels = [], [], set(), set()
        self._dashboard, self._caller = dashboard, caller

    async def crawl(self, paths):
        for path in paths:
            there = json.dumps(f"/ui/{path}")
            await self._dashboard.tab.evaluate(GO % there)
            await self._dashboard.calm()
            await self._dashboard.tab.evaluate(SELECT)
            self._note(path, await self._dashboard.tab.evaluate(PAGE))
        return self

    def _note(self, path, page):
        text = page["html"] + " ".join(page["values"])
        found = set(WORD.findall(text))
        self.words |= found
        self.leaks += [
            (path, name, kind)
            for name, kind in found
            if not self._caller.may_see(name, kind)
        ]
        for label in page["controls"]:
            for place, begins, scopes in NEEDS:
                if path.startswith(place) and label.startswith(begins):
                    self.labels.add(label)
                    if not scopes & self._caller.scopes:
                        self.controls.append((path, label))


class Maker:
    """Makes things with words of their owner, as the owner does."""

    def __init__(self, dashboard, owner):
        self.server, self.owner = dashboard.server, owner
        self.engine = dashboard.server.backburner.engine
        self.name = owner.user.partition("-")[0]
        self._shown = {}

    async def send(self, path, body):
        if not self._shown:
            wanted = NewKey(f"{self.name}-key", ROLES[Role.USER], user=self.owner.user)
            keys = self.server.backburner.keys
            _, key = await keys.create(wanted, Actor("t", self.owner.tenant))
            self._shown = self.server.shown(key)
        answer = await self.server.client.post(path, json=body, headers=self._shown)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def job(self, kind, **more):
        value = {"name": self.name, "then": kind, "word": f"{self.name}-input"}
        return {"capability": "ui.words", "input": value, **more}

    async def jobs(self):
        """Make a job that succeeds, one that fails and one that asks."""
        name = self.name
        callback = {"url": f"https://hooks.example/{name}-endpoint"}
        endpoint = await self.send("/v1/endpoints", callback)
        await self.send(f"/v1/endpoints/{endpoint['id']}/disable", None)
        marks = {"tags": [f"{name}-tag"], "metadata": {f"{name}-metadata": "x"}}
        wanted = [
            self.job("end", **marks, callback=callback),
            self.job("fail", **marks),
            self.job("ask", **marks),
        ]
        made = [(await self.send("/v1/jobs", one))["id"] for one in wanted]
        for one in made[:2]:
            await self.engine.wait(one, self.owner, timeout=60)
        asking = await self.engine.find(made[2], self.owner)
        async for event in self.engine.events(asking, after=0):
            if event.type == "job.waiting":
                return made
        raise AssertionError("the job did not ask")

    async def groups(self):
        """Make a flow that asks and a batch that failed."""
        name = self.name
        steps = [{"name": f"{name}-node", **self.job("ask")}]
        asked = {"steps": steps, "tags": [f"{name}-flow"]}
        flow = await self.send("/v1/flows", asked)
        members = [self.job("fail", tags=[f"{name}-member"])]
        asked = {"jobs": members, "tags": [f"{name}-batch"]}
        batch = await self.send("/v1/batches", asked)
        await self.engine.batches.wait(batch["id"], self.owner, timeout=60)
        return [f"flows/{flow['id']}", f"batches/{batch['id']}"]


async def things_of(dashboard, owner):
    """Make one of everything; return where its pages are."""
    maker = Maker(dashboard, owner)
    week = timedelta(days=7)
    budget = Budget("user", tokens=1000, per=week, of=owner.user)
    await maker.engine.budgets.put(budget)
    jobs = await maker.jobs()
    dropped = await maker.send("/v1/jobs", maker.job("ask"))
    await maker.send(f"/v1/jobs/{dropped['id']}/cancel", None)  # for the audit log
    tabs = [f"jobs/{jobs[0]}?tab={tab}" for tab in TABS]
    return [*(f"jobs/{one}" for one in jobs), *tabs, *await maker.groups()]


async def places(dashboard):
    """Make everybody's things once; return all addresses."""
    if not hasattr(dashboard, "crawled"):
        await dashboard.count_requests()
        made = [path for owner in OWNERS for path in await things_of(dashboard, owner)]
        _, key = await dashboard.key("platform-administrator", tenant="default")
        schedule = {"capability": "demo.echo", "cron": "0 3 1 1 *", "input": {}}
        answer = await dashboard.server.client.put(
            "/v1/schedules/dawn-schedule",
            json={**schedule, "timezone": "UTC", "missed": "skip"},
            headers=dashboard.server.shown(key),
        )
        assert answer.status_code < 300, answer.text
        dashboard.crawled = [*VIEWS, *PARTS, *made]
    return dashboard.crawled


async def crawled(dashboard, caller):
    """Log in with a new key of this kind, and go everywhere."""
    paths = await places(dashboard)
    wanted = NewKey(caller.name, caller.scopes, user=caller.user)
    keys = dashboard.server.backburner.keys
    made, text = await keys.create(wanted, Actor("t", caller.tenant))
    await dashboard.log_in(key=(made.id, text), streams="jobs:read" in caller.scopes)
    if caller.acts_in:
        act = f"sessionStorage.setItem('backburner-tenant', '{caller.acts_in}')"
        await dashboard.tab.evaluate(act)
    await dashboard.visit("overview")
    await dashboard.tab.until("document.querySelector('main h1')")
    try:
        return await Crawler(dashboard, caller).crawl(paths)
    finally:
        await keys.revoke(made.id, Actor("t", caller.tenant))


@pytest.mark.thorough
@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
async def test_nobody_is_shown_others_things_or_controls_beyond_their_scopes(
    dashboard, caller
):
    found = await crawled(dashboard, caller)

    assert [] == found.leaks
    assert [] == found.controls
    for name, kinds in caller.sees.items():
        if kinds >= ALWAYS:
            assert ALWAYS <= {kind for one, kind in found.words if one == name}


async def crawled_as_if(dashboard, caller, headers):
    """Crawl while every answer is that for somebody else."""

    async def plant(route):
        asked = route.request.headers
        kept = {name: asked[name] for name in asked if name != "cookie"}
        await route.continue_(headers=kept | headers)

    planted = re.compile(r"/v1/(?!events|session)")
    await dashboard.tab.page.route(planted, plant)
    try:
        return await crawled(dashboard, caller)
    finally:
        await dashboard.tab.page.unroute(planted)


async def test_the_crawler_finds_leaks_and_controls_that_are_planted(dashboard):
    """Every answer is that for an administrator, then that for another user."""
    await places(dashboard)
    _, key = await dashboard.key("platform-administrator", tenant="default")
    other = {"authorization": f"Bearer {key}", "x-tenant-id": CAT.tenant}
    leaks, controls = [], []
    for more in ({}, {"x-user-id": CAT.user}):
        found = await crawled_as_if(dashboard, CALLERS[1], other | more)
        leaks += found.leaks
        controls += [label for _, label in found.controls]

    leaked = {kind for _, name, kind in leaks if name == "cat"}
    assert set() == KINDS - leaked
    assert ("fleet", PLATFORM, "schedule") in leaks
    missing = {one for one in SHOWN if not any(map(re.compile(one).match, controls))}
    assert set() == missing
