"""
Discord's API as replies use it, on loopback, and strict where Discord is.

It refuses messages of over 2,000 characters, tokens it does not know, and more than
five calls of a token within two seconds.
"""

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from backburner_apps.chat.discord.splitting import MORE
from tests.apps.chat.discord.payloads import APPLICATION

PATIENCE = 120.0
BURST, WINDOW = 5, 2.0
BOT = "Bot a-bot-token"


@dataclass
class Call:
    """One call, as it was answered."""

    at: float
    kind: str
    token: str
    content: str
    status: int = 0

    @property
    def is_draft(self):
        return self.content.endswith(MORE)


@dataclass
class Hold:
    """Has a call wait: before or after it was carried out."""

    matches: object
    is_after: bool
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def reached(self):
        async with asyncio.timeout(PATIENCE):
            await self.arrived.wait()


class FakeDiscord:
    """The server; what it was sent and what it shows."""

    def __init__(self):
        self.url = ""
        self.calls = []
        self.shown = {}
        """By token, the messages that users see: the reply, then what follows it."""
        self.commands = []
        self.refusals = deque()
        """Status and body of the next answers, in place of carrying calls out."""
        self.refuses = lambda _call: True
        """Which calls those are for."""
        self._holds = []
        self._changed = asyncio.Condition()

    def defer(self, *tokens):
        """Show that replies come, as Discord does when a call was deferred."""
        self.shown |= {token: [None] for token in tokens}

    def hold(self, matches=lambda _call: True, *, after=False):
        """Have the next call that matches wait until it is released."""
        hold = Hold(matches, after)
        self._holds.append(hold)
        return hold

    def of(self, token, kind="edit"):
        """Return the accepted calls for a reply."""
        return [
            call
            for call in self.calls
            if (token, kind, 200) == (call.token, call.kind, call.status)
        ]

    async def until(self, condition):
        """Wait until something is so."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(condition)

    async def shows(self, token, *texts):
        """Wait until a reply has these messages."""
        await self.until(lambda: self.shown[token] == [*texts])

    async def handle(self, request):
        """Carry a call out."""
        call = Call(
            asyncio.get_running_loop().time(),
            {"PATCH": "edit", "POST": "follow-up"}[request.method],
            request.match_info["token"],
            (await request.json()).get("content", ""),
        )
        await self._held(call, after=False)
        status, body = self._answer(request, call)
        call.status = status
        async with self._changed:
            self.calls.append(call)
            self._changed.notify_all()
        await self._held(call, after=True)
        headers = {"Retry-After": "1"} if status == 429 else {}
        return web.json_response(body, status=status, headers=headers)

    async def _held(self, call, *, after):
        for hold in [*self._holds]:
            if hold.is_after == after and hold.matches(call):
                self._holds.remove(hold)
                hold.arrived.set()
                await hold.release.wait()

    def _answer(self, request, call):
        if self.refusals and self.refuses(call):
            return self.refusals.popleft()
        refusal = self._unknown(request, call) or self._too_often(call)
        refusal = refusal or _invalid(call.content)
        if refusal:
            return refusal
        messages = self.shown[call.token]
        if call.kind == "edit":
            messages[0] = call.content
        else:
            messages.append(call.content)
        return 200, {"id": "1", "content": call.content}

    def _unknown(self, request, call):
        if request.match_info["application"] != APPLICATION:
            return 401, {"message": "Unauthorized", "code": 0}
        if call.token not in self.shown:
            return 404, {"message": "Unknown Webhook", "code": 10015}
        return None

    def _too_often(self, call):
        recent = [
            other.at
            for other in self.calls
            if other.token == call.token and other.at > call.at - WINDOW
        ]
        if len(recent) < BURST:
            return None
        wait = round(recent[-BURST] + WINDOW - call.at, 3)
        body = {"message": "You are being rate limited.", "global": False}
        return 429, body | {"retry_after": wait}

    async def register(self, request):
        """Take the slash commands."""
        if request.headers.get("Authorization") != BOT:
            return web.json_response({"message": "401: Unauthorized"}, status=401)
        if self.refusals:
            status, body = self.refusals.popleft()
            headers = {"Retry-After": "7"} if status == 429 else {}
            return web.json_response(body, status=status, headers=headers)
        self.commands.append((request.path, await request.json()))
        return web.json_response(self.commands[-1][1])


def _invalid(content):
    if not content.strip():
        return 400, {"message": "Cannot send an empty message", "code": 50006}
    if len(content.encode("utf-16-le")) // 2 > 2000:
        return 400, {"message": "Invalid Form Body", "code": 50035}
    return None


@asynccontextmanager
async def fake_discord():
    """Serve one."""
    fake, app = FakeDiscord(), web.Application()
    hook = "/api/v10/webhooks/{application}/{token}"
    place = "/api/v10/applications/{application}"
    app.router.add_patch(f"{hook}/messages/@original", fake.handle)
    app.router.add_post(hook, fake.handle)
    app.router.add_put(f"{place}/commands", fake.register)
    app.router.add_put(f"{place}/guilds/{{guild}}/commands", fake.register)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/v10"
    try:
        yield fake
    finally:
        for hold in fake._holds:
            hold.release.set()
        await runner.cleanup()
