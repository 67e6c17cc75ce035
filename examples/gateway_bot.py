"""
A Discord bot that replies when it is mentioned; it needs no public address.

    DISCORD_BOT_TOKEN=… GATEWAY_URL=http://127.0.0.1:8765 python gateway_bot.py
"""

import asyncio
import json
from os import environ  # noqa: TID251 - a program of its own
from typing import Any

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

API = environ.get("DISCORD_API_BASE_URL", "https://discord.com/api/v10")
TOKEN = environ["DISCORD_BOT_TOKEN"]
CHAT = f"{environ['GATEWAY_URL']}/ai/generate"
KEY = {"Authorization": f"Bearer {environ.get('BACKBURNER_API_KEY', 'none')}"}
INTENTS = 1 << 9 | 1 << 12 | 1 << 15  # messages in servers, direct ones, their text
SORRY = "❌ Sorry, something went wrong processing your request."


async def reply(client: httpx2.AsyncClient, asked: dict[str, Any]) -> None:
    place = f"{API}/channels/{asked['channel_id']}/messages"
    sent = (await client.post(place, json={"content": "…"})).json()
    body = {
        "requestId": asked["id"],
        "personalityId": environ.get("PERSONALITY", "assistant"),
        "channelId": asked["channel_id"],
        "userId": asked["author"]["id"],
        "userMessage": asked["content"],
    }
    try:
        answer = await client.post(CHAT, json=body, headers=KEY, timeout=660)
        content = answer.raise_for_status().json()["content"][:2000]
    except (httpx2.HTTPError, KeyError):  # refused, failed, or not there in time
        content = SORRY
    shown = {"content": content, "allowed_mentions": {"parse": []}}
    await client.patch(f"{place}/{sent['id']}", json=shown)


async def listen(socket: ClientConnection, client: httpx2.AsyncClient) -> None:
    seconds = json.loads(await socket.recv())["d"]["heartbeat_interval"] / 1000
    identity = {"token": TOKEN, "intents": INTENTS, "properties": {}}
    await socket.send(json.dumps({"op": 2, "d": identity}))
    me, last, replies, loop = "", None, set(), asyncio.get_running_loop()
    due = loop.time() + seconds
    while True:
        try:
            async with asyncio.timeout_at(due):
                event = json.loads(await socket.recv())
        except TimeoutError:
            await socket.send(json.dumps({"op": 1, "d": last}))
            due = loop.time() + seconds
            continue
        last, kind, data = event["s"] or last, event["t"], event["d"]
        if kind == "READY":
            me = data["user"]["id"]
        elif kind == "MESSAGE_CREATE" and me in [u["id"] for u in data["mentions"]]:
            replies.add(task := asyncio.create_task(reply(client, data)))
            task.add_done_callback(replies.discard)


async def main() -> None:
    headers = {"Authorization": f"Bot {TOKEN}"}
    async with httpx2.AsyncClient(headers=headers) as client:
        url = (await client.get(f"{API}/gateway")).json()["url"]
        async for socket in connect(f"{url}/?v=10&encoding=json"):
            try:
                await listen(socket, client)
            except ConnectionClosed:
                continue  # connect again


asyncio.run(main())
