"""
Events as they happen, over one WebSocket.

A client sends `{"type": "subscribe", "job_id": …, "after": …}`, or with `flow_id`,
`batch_id` or `tag` in its place, or with none for everything that is its own, and
`{"type": "unsubscribe", …}`. It gets `subscribed`, the events in the same shape as over
SSE, `ended` when a job, flow or batch has ended, and `error` with a problem. `after` is
a job's own number of the last event seen, else the number among all events.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated, Any, Literal, Self

import orjson
from fastapi import APIRouter
from pydantic import Field, ValidationError, model_validator
from starlette.websockets import WebSocket, WebSocketDisconnect

from backburner.domain.errors import BackburnerError, InvalidInput
from backburner.domain.event import Event
from backburner.http import body, wire
from backburner.http.auth import Caller, require
from backburner.http.door import door_of
from backburner.http.events import all_of
from backburner.http.problems import field_errors, problem, request_id_of
from backburner.http.schemas import MAX_CURSOR, Asked, Name, Tag, refuse_several
from backburner.ports.store import Topic

router = APIRouter()

MAX_MESSAGE = 4_096
GOING_AWAY = 1001


Subject = tuple[str, str | None]
"""What a subscription is about: the field that names it, and its value."""


class Wish(Asked):
    """What a client asks of the socket."""

    type: Literal["subscribe", "unsubscribe"]
    job_id: Name | None = None
    flow_id: Name | None = None
    batch_id: Name | None = None
    tag: Tag | None = None
    after: int | None = Field(None, ge=0, le=MAX_CURSOR)

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        refuse_several(self._named())
        return self

    @property
    def subject(self) -> Subject:
        """What it is about; everything is no job in particular."""
        given = {name: value for name, value in self._named().items() if value}
        return next(iter(given.items()), ("job_id", None))

    def _named(self) -> dict[str, str | None]:
        return {
            "job_id": self.job_id,
            "flow_id": self.flow_id,
            "batch_id": self.batch_id,
            "tag": self.tag,
        }


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
        self._following: dict[Subject, asyncio.Task[None]] = {}
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
        subject = wish.subject
        former = self._following.pop(subject, None)
        if former is not None:
            former.cancel()
        if wish.type == "unsubscribe":
            await self._send({"type": "unsubscribed", **dict([subject])})
            return
        events, after = await self._events(wish)
        await self._send({"type": "subscribed", **dict([subject]), "after": after})
        task = asyncio.ensure_future(self._follow(subject, events))
        self._following[subject] = task
        task.add_done_callback(partial(self._forget, subject))

    async def _events(self, wish: Wish) -> tuple[AsyncGenerator[Event, None], int]:
        engine, owner = self._door.engine, self._caller.owner
        after = wish.after or 0
        if wish.job_id is not None:
            job = await engine.find(wish.job_id, owner)
            return engine.events(job, after=after), after
        if wish.flow_id is not None:
            flow = await engine.flows.find(wish.flow_id, owner)
            return engine.flows.events(flow, after=after), after
        if wish.batch_id is not None:
            batch = await engine.batches.find(wish.batch_id, owner)
            return engine.batches.events(batch, after=after), after
        if wish.after is None:
            after = await engine.store.latest()
        topic = all_of(self._caller) if wish.tag is None else Topic(tag=wish.tag)
        return engine.stream(owner, after=after, topic=topic), after

    async def _follow(
        self, subject: Subject, following: AsyncGenerator[Event, None]
    ) -> None:
        try:
            with self._door.streams.place():
                async with aclosing(following) as events:
                    async for event in events:
                        await self._send(wire.event(event))
            await self._send({"type": "ended", **dict([subject])})
        except BackburnerError as error:
            await self._refuse(error)

    def _forget(self, subject: Subject, task: asyncio.Task[None]) -> None:
        if self._following.get(subject) is task:
            del self._following[subject]
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
