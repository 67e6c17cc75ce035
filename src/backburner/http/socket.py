"""
Events as they happen, over one WebSocket.

A client sends `{"type": "subscribe", "job_id": …, "after": …}`, or without `job_id` for
all of its jobs, and `{"type": "unsubscribe", …}`. It gets `subscribed`, the events in
the same shape as over SSE, `ended` when a job has ended, and `error` with a problem.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter
from pydantic import Field, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from backburner.domain.errors import BackburnerError, InvalidInput
from backburner.domain.event import Event
from backburner.http import body, wire
from backburner.http.auth import Caller, require
from backburner.http.door import door_of
from backburner.http.events import MAX_CURSOR
from backburner.http.problems import field_errors, problem, request_id_of
from backburner.http.schemas import Asked, Name

router = APIRouter()

MAX_MESSAGE = 4_096
GOING_AWAY = 1001


class Wish(Asked):
    """What a client asks of the socket."""

    type: Literal["subscribe", "unsubscribe"]
    job_id: Name | None = Field(None, description="Left out: all of the caller's.")
    after: int | None = Field(None, ge=0, le=MAX_CURSOR)


@router.websocket("/v1/ws")
async def connect(
    socket: WebSocket, caller: Annotated[Caller, require("jobs:read")]
) -> None:
    """Serve one client until it leaves or the server stops."""
    streams = door_of(socket).streams
    with streams.place():
        await socket.accept()
        session = Session(socket, caller)
        listening = asyncio.ensure_future(session.listen())
        stopping = asyncio.ensure_future(streams.stopped())
        try:
            done, _ = await asyncio.wait(
                {listening, stopping, session.fault},
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            listening.cancel()
            stopping.cancel()
            await session.end()
        with suppress(WebSocketDisconnect):
            for task in done:
                task.result()
            if listening not in done:
                await socket.close(GOING_AWAY)


class Session:
    """One client and what it subscribed to."""

    def __init__(self, socket: WebSocket, caller: Caller) -> None:
        self._socket = socket
        self._door = door_of(socket)
        self._caller = caller
        self._following: dict[str | None, asyncio.Task[None]] = {}
        self.fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails when telling the client does."""

    async def listen(self) -> None:
        """Do what the client asks, until it leaves."""
        while (message := await self._socket.receive())["type"] == "websocket.receive":
            try:
                await self._grant(_read(message.get("text")))
            except BackburnerError as error:
                await self._refuse(error)

    async def end(self) -> None:
        """Stop telling."""
        tasks = list(self._following.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self.fault.cancel():
            self.fault.exception()

    async def _grant(self, wish: Wish) -> None:
        former = self._following.pop(wish.job_id, None)
        if former is not None:
            former.cancel()
        if wish.type == "unsubscribe":
            await self._send({"type": "unsubscribed", "job_id": wish.job_id})
            return
        events, after = await self._events(wish)
        told = {"type": "subscribed", "job_id": wish.job_id, "after": after}
        await self._send(told)
        task = asyncio.ensure_future(self._follow(wish.job_id, events))
        self._following[wish.job_id] = task
        task.add_done_callback(partial(self._forget, wish.job_id))

    async def _events(self, wish: Wish) -> tuple[AsyncGenerator[Event, None], int]:
        engine, owner = self._door.engine, self._caller.owner
        if wish.job_id is not None:
            job = await engine.find(wish.job_id, owner)
            return engine.events(job, after=wish.after or 0), wish.after or 0
        after = wish.after if wish.after is not None else await engine.store.latest()
        return engine.stream(owner, after=after), after

    async def _follow(
        self, job_id: str | None, following: AsyncGenerator[Event, None]
    ) -> None:
        try:
            with self._door.streams.place():
                async with aclosing(following) as events:
                    async for event in events:
                        await self._send(wire.event(event))
            await self._send({"type": "ended", "job_id": job_id})
        except BackburnerError as error:
            await self._refuse(error)

    def _forget(self, job_id: str | None, task: asyncio.Task[None]) -> None:
        if self._following.get(job_id) is task:
            del self._following[job_id]
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.fault.done():
            self.fault.set_exception(error)

    async def _refuse(self, error: BackburnerError) -> None:
        told = problem(error, request_id=request_id_of(self._socket))
        await self._send({"type": "error", "problem": told})

    async def _send(self, message: dict[str, Any]) -> None:
        await self._socket.send_text(orjson.dumps(message).decode())


def _read(text: str | None) -> Wish:
    if text is None or len(text) > MAX_MESSAGE:
        raise InvalidInput(f"send JSON as text, at most {MAX_MESSAGE} characters")
    try:
        return Wish.model_validate(body.parse(text))
    except ValidationError as error:
        told = error.errors(
            include_url=False, include_context=False, include_input=False
        )
        raise InvalidInput("the message is not valid", field_errors(told)) from None
