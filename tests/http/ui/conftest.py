"""One browser and one server with keys for all views of the dashboard."""

import asyncio
import json
import os
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
from pydantic import BaseModel, Field

from backburner import PermanentError, RetryPolicy, TransientError, capability
from backburner.cli.doctor import examine
from backburner.demo import app as demo
from backburner.domain.auth.access import ROLES, Role
from backburner.engine.access.keys import Actor, NewKey
from backburner.settings import Settings
from tests import homes
from tests.apps.documents.browser.contrast import TOO_FAINT
from tests.browser import a_tab
from tests.http.conftest import AT_ONCE, PEPPER, a_server

AXE = Path("tools/axe/node_modules/axe-core/axe.min.js")
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
HOSTILE = '<img src=x onerror="window.isBroken=1">\u202egnp.exe\u001b[31m'
VIOLATIONS = (
    "axe.run(document, %s).then(found => found.violations.map("
    "one => [one.id, one.nodes.map(node => node.html).slice(0, 3)]))"
)

COUNT = """
window.pending = 0
{
  const read = window.fetch
  window.fetch = (path, how) => {
    const asked = read(path, how)
    if (String(path).startsWith('/v1/events')) return asked
    window.pending++
    const over = () => void window.pending--
    asked.then(over, over)
    return asked
  }
}
"""
"""Counts the requests that are not answered."""
CALM = """
new Promise(done => {
  let calm = 0
  const look = () => {
    calm = window.pending ? 0 : calm + 1
    if (calm > 5) done(true)
    else requestAnimationFrame(() => setTimeout(look, 10))
  }
  look()
})
"""


class Dashboard:
    """A page of the dashboard, and the server behind it."""

    def __init__(self, server, tab):
        self.server = server
        self.tab = tab

    async def key(self, role, tenant="acme", user=None):
        """Return a new key of a role: its id and its text."""
        wanted = NewKey(role, ROLES[Role(role)], user=user)
        made, text = await self.server.backburner.keys.create(
            wanted, Actor("t", tenant)
        )
        return made.id, text

    async def log_in(
        self, role="tenant-administrator", key=None, *, streams=True, **more
    ):
        """
        Log in as a person does, with a new key of a role; return the key's id.

        Without `jobs:read` no key has a stream.
        """
        key_id, text = key or await self.key(role, **more)
        await self.enter(text)
        await self.shows("Live" if streams else "Every 15 s", ".connection")
        return key_id

    async def enter(self, key):
        """Open the login form and send a key."""
        # The former page is left first: it would ask once more, without its session.
        await self.tab.open("about:blank")
        await self.tab.send(
            "Storage.clearDataForOrigin", origin=self.server.url, storageTypes="all"
        )
        await self.tab.send("Page.navigate", url=f"{self.server.url}/ui/")
        await self.type_key(key)

    async def type_key(self, key):
        """Send a key by the login form that is open."""
        await self.tab.until("document.getElementById('key')")
        await self.tab.click("#key")
        await self.tab.type(key)
        await self.tab.press("Enter")

    def forget_errors(self):
        """Forget what was reported, as by the browser for a status that was wanted."""
        self.tab.messages.clear()
        self.tab.errors.clear()

    async def submit(self, path, body, role="tenant-administrator", **more):
        """Send something to the API with a key of its own; return the answer."""
        _, text = await self.key(role, **more)
        shown = self.server.shown(text)
        answer = await self.server.client.post(path, json=body, headers=shown)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def visit(self, path):
        """Open an address of the dashboard."""
        await self.tab.open(f"{self.server.url}/ui/{path}")

    async def count_requests(self):
        """Count the requests of all pages from now on, for `calm`."""
        await self.tab.page.add_init_script(COUNT)

    async def calm(self):
        """Wait until the page has read what it shows, and has drawn it."""
        await self.tab.evaluate(CALM)

    async def shows(self, text, selector="body"):
        """Wait until an element shows a text."""
        await self.tab.until(
            f"document.querySelector({json.dumps(selector)})?.innerText"
            f".includes({json.dumps(text)})"
        )

    async def click(self, label, within="button"):
        """Click the first visible element whose text begins with this."""
        begins = re.compile(rf"^\s*{re.escape(label)}")
        seen = self.tab.page.locator(f"{within}:visible", has_text=begins)
        await seen.first.click()

    async def check(self, name):
        """Check that a view can be read and operated, in both themes and widths."""
        folder = os.environ.get("BACKBURNER_TEST_SCREENSHOTS")
        for scheme in ("light", "dark"):
            for width in (1280, 360):
                await self.tab.look(scheme=scheme, width=width)
                wide = await self.tab.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, (name, scheme, width, wide)
                assert [] == await self.tab.evaluate(TOO_FAINT), (name, scheme, width)
                if folder:
                    await self.tab.screenshot(
                        Path(folder) / f"{name} {scheme} {width}.png"
                    )
            found = await self.violations()
            assert [] == found, (name, scheme)
        await self.tab.look()
        self.check_quiet()

    async def violations(self):
        """Return what axe finds."""
        if not await self.tab.evaluate("'axe' in window"):
            await self.tab.evaluate(await asyncio.to_thread(AXE.read_text))
        return await self.tab.evaluate(VIOLATIONS % json.dumps(RULES))

    def check_quiet(self):
        """Check that nothing was said on the console, and nobody else was asked."""
        assert [] == self.tab.messages
        assert [] == self.tab.errors
        here = self.server.url
        # Chromium draws the icon of a date field from a data URL of its own.
        known = (here, "data:image/svg+xml")
        assert [] == [url for url in self.tab.requests if not url.startswith(known)]


@pytest.fixture(scope="module")
def axe():
    """Skip where axe is not installed; in CI that is a failure."""
    if not AXE.exists():
        missing = "axe is not installed: run the tests by `make test`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)


@capability("ui.hostile", queue="demo")
async def hostile(_ctx, _value: dict[str, Any]) -> str:
    raise PermanentError(HOSTILE)


@capability("ui.large", queue="demo")
async def large(ctx, value: dict[str, Any]) -> str:
    """Store steps, and answer with as many characters as are asked for."""
    await ctx.step("add up", lambda: {"sum": 3})
    for step in range(value.get("notes", 0)):
        await ctx.emit(f"{step} ")
    return ctx.text if value.get("notes") else "x" * value["size"]


@capability("ui.steps", queue="demo", tokens=3_000, model="gpt-4o-mini")
async def steps(ctx, value: dict[str, Any]) -> str:
    """Store two steps and use a model; fail as often as is asked for."""
    found = await ctx.step("look up", lambda: {"title": value["title"]})
    text = await ctx.step("outline <b>", lambda: f"About {found['title']}")
    ctx.used("gpt-4o-mini", input_tokens=900, output_tokens=100)
    if ctx.job.attempt <= value.get("fails", 0):
        raise TransientError("The provider is overloaded.")
    return f"{text}, for {value['reader']}"


@capability("ui.dear", queue="demo", tokens=3_000, model="gpt-4o-mini")
async def dear(ctx, value: dict[str, Any]) -> str:
    """Use a model, more than a little; fail as often as is asked for."""
    ctx.used("gpt-4o-mini", input_tokens=value.get("tokens", 2_000), output_tokens=500)
    if ctx.job.attempt <= value.get("fails", 0):
        raise PermanentError("The answer cannot be used.", code="UNUSABLE")
    return "done"


resumed = {"is_seen": asyncio.Event()}
"""Set when the text of `ui.resumed` was seen."""


@capability("ui.resumed", queue="demo", retry=AT_ONCE)
async def resume(ctx, _value: dict[str, Any]) -> str:
    """Fail after the first words, repeat them, and go on."""
    await ctx.emit("Hello ")
    if ctx.job.attempt == 1:
        raise TransientError("The worker is lost.")
    await ctx.emit("world")
    await resumed["is_seen"].wait()
    return ctx.text


broken = {"cause": True}
"""Whether `ui.flaky` fails."""


@capability("ui.flaky", queue="demo", retry=RetryPolicy(max_attempts=1))
async def flaky(_ctx, value: dict[str, Any]) -> str:
    if broken["cause"] or value.get("poison"):
        code = "POISON" if value.get("poison") else "PROVIDER_DOWN"
        raise PermanentError("The provider does not answer.", code=code)
    return "done"


class Refund(BaseModel):
    """What a person decides."""

    approve: bool = False
    amount: int = Field(title="Amount in cents", ge=0)
    reason: Literal["damaged", "late", "other"]
    note: str | None = Field(None, description="For the customer.")


@capability("ui.ask", queue="demo")
async def ask(ctx, value: dict[str, Any]) -> Any:
    """Ask a person, with choices or with a form."""
    if value.get("form"):
        return await ctx.ask_person(value["question"], into=Refund)
    return await ctx.ask_person(
        value["question"],
        choices=["Send it", "Hold it back"],
        timeout=3600,
        default="Hold it back",
    )


@capability("ui.words", queue="demo", retry=RetryPolicy(max_attempts=1))
async def words(ctx, value: dict[str, Any]) -> str:
    """Leave words of somebody everywhere; then end, fail or ask."""
    name = value["name"]
    await ctx.step(f"{name}-step", lambda: {"found": name})
    ctx.used(f"{name}-model", input_tokens=9, output_tokens=1)
    if value["then"] == "fail":
        raise PermanentError(f"The {name}-error is known.")
    if value["then"] == "ask":
        return await ctx.ask_person(f"A {name}-question?", choices=[f"{name}-choice"])
    return f"{name}-output"


@pytest.fixture(scope="module")
def store_of_file(request, tmp_path_factory):
    """A store of the kind that a file asks for, or that its name has in this run."""
    if getattr(request, "param", homes.one_of(request.path.name)) == "postgres":
        migrated = request.getfixturevalue("migrated_for_files")
        migrated.clean()
        return migrated.url
    return f"sqlite:///{tmp_path_factory.mktemp('ui')}/jobs.db"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def dashboard(store_of_file, axe):  # noqa: ARG001 - it may skip
    async with a_dashboard(store_of_file) as dashboard:
        yield dashboard


@asynccontextmanager
async def a_dashboard(store, more=(), **limits):
    """Serve a store, with more capabilities and settings, and open a browser."""
    broken["cause"] = True
    examined = Settings(store=store, key_pepper=PEPPER)
    async with (
        a_server(
            store,
            keyed=True,
            limits={"cookie_secure": False, **limits},
            webhooks={"webhook_secret": "a secret that only these tests have"},
            examine=lambda: examine(examined, lambda: [demo]),
            capabilities=[
                hostile,
                large,
                flaky,
                dear,
                ask,
                steps,
                words,
                resume,
                *more,
            ],
        ) as server,
        a_tab() as tab,
    ):
        await tab.look()
        yield Dashboard(server, tab)
