"""`examples/gateway_bot.py`: it is mentioned, asks `chat` and edits its own message."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import WSMsgType, web

from tests import warm
from tests.apps.chat.conftest import ADA, chatting
from tests.apps.chat.discord.fake import BOT, PATIENCE

EXAMPLE = Path(__file__).parents[4] / "examples" / "gateway_bot.py"
BOT_ID = "42"


class Gateway:
    """Discord's gateway and channels, as far as a bot needs them."""

    def __init__(self):
        self.heartbeats = 0
        self.connections = 0
        self.identity = {}
        self.messages = {}
        self.queue = asyncio.Queue()
        self.changed = asyncio.Condition()

    def mention(self, number, text, *, mentions=(BOT_ID,)):
        """Have somebody write a message."""
        data = {
            "id": str(number),
            "channel_id": "7",
            "author": {"id": "77"},
            "content": text,
            "mentions": [{"id": user} for user in mentions],
        }
        self.queue.put_nowait({"op": 0, "t": "MESSAGE_CREATE", "s": 2, "d": data})

    async def until(self, condition):
        async with asyncio.timeout(PATIENCE), self.changed:
            await self.changed.wait_for(condition)

    async def told(self):
        async with self.changed:
            self.changed.notify_all()

    async def connect(self, request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.connections += 1
        hello = {"op": 10, "t": None, "s": None, "d": {"heartbeat_interval": 50}}
        await socket.send_json(hello)
        self.identity = await socket.receive_json()
        ready = {"op": 0, "t": "READY", "s": 1, "d": {"user": {"id": BOT_ID}}}
        await socket.send_json(ready)
        await self.told()
        sending = asyncio.create_task(self._send(socket))
        async for message in socket:
            self.heartbeats += message.type is WSMsgType.TEXT
            await self.told()
        sending.cancel()
        return socket

    async def _send(self, socket):
        while (event := await self.queue.get()) is not None:
            await socket.send_json(event)
        await socket.close()

    async def where(self, request):
        return web.json_response({"url": f"ws://{request.host}"})

    async def write(self, request):
        if request.headers.get("Authorization") != BOT:
            return web.json_response({}, status=401)
        number = request.match_info.get("message", str(len(self.messages) + 1))
        self.messages[number] = (await request.json())["content"]
        await self.told()
        return web.json_response({"id": number})


@asynccontextmanager
async def serving(gateway):
    app, place = web.Application(), "/channels/7/messages"
    app.router.add_get("/gateway", gateway.where)
    app.router.add_get("/", gateway.connect)
    app.router.add_post(place, gateway.write)
    app.router.add_patch(f"{place}/{{message}}", gateway.write)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.one_store
async def test_it_replies_where_it_is_mentioned_and_goes_on_after_a_disconnect(
    store_url,
):
    gateway = Gateway()
    async with serving(gateway) as api, chatting(store_url) as chat:
        await chat.make(ADA)
        settings = {
            "DISCORD_API_BASE_URL": api,
            "DISCORD_BOT_TOKEN": BOT.removeprefix("Bot "),
            "GATEWAY_URL": chat.url,
            "PERSONALITY": ADA.id,
        }
        environ = os.environ  # noqa: TID251 - what the example starts in
        bot = await asyncio.to_thread(
            warm.Popen, [sys.executable, EXAMPLE], env={**environ, **settings}
        )
        try:
            await gateway.until(lambda: gateway.connections == 1)
            gateway.mention(1, "not for the bot", mentions=())
            gateway.mention(2, "hello")
            await gateway.until(
                lambda: gateway.messages == {"1": "Mock answer to: hello"}
            )
            await gateway.until(lambda: gateway.heartbeats)
            gateway.queue.put_nowait(None)  # the gateway hangs up
            await gateway.until(lambda: gateway.connections == 2)
            gateway.mention(3, "[[mock: 400]] no")
            await gateway.until(lambda: len(gateway.messages) == 2)
            await gateway.until(lambda: gateway.messages["2"].startswith("❌ Sorry"))
        finally:
            bot.kill()
            await asyncio.to_thread(bot.wait)
    assert {"op": 2} == {"op": gateway.identity["op"]}
    assert gateway.identity["d"]["token"] == BOT.removeprefix("Bot ")
