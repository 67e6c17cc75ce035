"""
Events as they happen, over one WebSocket.

A client sends `{"type": "subscribe", "job_id": …, "after": …}`, or `flow_id`,
`batch_id`, `tag` or `topic` instead of `job_id`, or none of them for all its events,
and `{"type": "unsubscribe", …}`. It receives `subscribed`, events in the same shape as
over SSE, `ended` when a job, flow or batch has ended, and `error` with a problem.
`after` is the number of the last event seen: within a job, otherwise among all events.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Literal, Self

import orjson
from fastapi import APIRouter
from pydantic import Field, ValidationError, model_validator
from starlette.websockets import WebSocket, WebSocketDisconnect

from backburner.domain.errors import BackburnerError, InvalidInput
from backburner.domain.events.event import Event
from backburner.http import body, wire
from backburner.http.auth import until_of
from backburner.http.problems import field_errors, problem, request_id_of
from backburner.http.routes.events import all_of
from backburner.http.schemas.jobs import (
    MAX_CURSOR,
    Asked,
    Name,
    Tag,
    TopicName,
    refuse_several,
)
from backburner.http.state import server_state_of
from backburner.http.streams.access import StreamAccess, StreamReader
from backburner.ports.store.events import Topic

router = APIRouter()

MAX_MESSAGE = 4_096
GOING_AWAY = 1001
POLICY_VIOLATION = 1008


Subject = tuple[str, str | None]
"""The subject of a subscription: the field that names it, and its value."""


class SocketRequest(Asked):
    """A message from a client."""

    type: Literal["subscribe", "unsubscribe"]
    job_id: Name | None = None
    flow_id: Name | None = None
    batch_id: Name | None = None
    tag: Tag | None = None
    topic: TopicName | None = None
    after: int | None = Field(None, ge=0, le=MAX_CURSOR)

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        refuse_several(self._named())
        return self

    @property
    def subject(self) -> Subject:
        """The subject; for all events, `job_id` without a value."""
        given = {name: value for name, value in self._named().items() if value}
        return next(iter(given.items()), ("job_id", None))

    def _named(self) -> dict[str, str | None]:
        return {
            "job_id": self.job_id,
            "flow_id": self.flow_id,
            "batch_id": self.batch_id,
            "tag": self.tag,
            "topic": self.topic,
        }


@router.websocket("/v1/ws")
async def connect(socket: WebSocket, reader: StreamReader) -> None:
    """Serve one client until it leaves or the server stops."""
    server_state = server_state_of(socket)
    streams = server_state.streams
    with streams.place(reader.key):
        await socket.accept()
        session = Session(socket, reader)
        listening = asyncio.ensure_future(session.listen())
        # This ends when the server stops, too.
        revoked = asyncio.ensure_future(
            server_state.revoked(reader.key, until_of(socket.scope))
        )
        try:
            done, _ = await asyncio.wait(
                {listening, revoked, session.fault},
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            listening.cancel()
            revoked.cancel()
            await session.end()
        with suppress(WebSocketDisconnect):
            for task in done:
                task.result()
            if listening not in done:
                is_stopping = streams.stopping.is_set()
                await socket.close(GOING_AWAY if is_stopping else POLICY_VIOLATION)


class Session:
    """One client and its subscriptions."""

    def __init__(self, socket: WebSocket, reader: StreamAccess) -> None:
        self._socket = socket
        self._server_state = server_state_of(socket)
        self._reader = reader
        self._following: dict[Subject, asyncio.Task[None]] = {}
        self.fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails if sending to the client fails."""

    async def listen(self) -> None:
        """Handle the messages of the client until it leaves."""
        while (message := await self._socket.receive())["type"] == "websocket.receive":
            try:
                if self._server_state.limits is not None:
                    self._server_state.limits.count(
                        self._reader.name, self._socket.scope
                    )
                await self._grant(_read(message.get("text")))
            except BackburnerError as error:
                await self._refuse(error)

    async def end(self) -> None:
        """End all subscriptions."""
        tasks = list(self._following.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self.fault.cancel():
            self.fault.exception()

    async def _grant(self, socket_request: SocketRequest) -> None:
        subject = socket_request.subject
        former = self._following.pop(subject, None)
        if former is not None:
            former.cancel()
        if socket_request.type == "unsubscribe":
            await self._send({"type": "unsubscribed", **dict([subject])})
            return
        events, after = await self._events(socket_request)
        await self._send({"type": "subscribed", **dict([subject]), "after": after})
        task = asyncio.ensure_future(self._follow(subject, events))
        self._following[subject] = task
        task.add_done_callback(partial(self._forget, subject))

    async def _events(
        self, socket_request: SocketRequest
    ) -> tuple[AsyncGenerator[Event, None], int]:
        engine, reader = self._server_state.engine, self._reader
        after = socket_request.after or 0
        if socket_request.job_id is not None:
            caller = reader.following("job", socket_request.job_id)
            job = await engine.find(socket_request.job_id, caller.visible)
            return engine.events(job, after=after), after
        if socket_request.flow_id is not None:
            caller = reader.following("flow", socket_request.flow_id)
            flow = await engine.flows.find(socket_request.flow_id, caller.visible)
            return engine.flows.events(flow, after=after), after
        if socket_request.batch_id is not None:
            caller = reader.following("batch", socket_request.batch_id)
            batch = await engine.batches.find(socket_request.batch_id, caller.visible)
            return engine.batches.events(batch, after=after), after
        if socket_request.after is None:
            after = await engine.store.latest()
        if socket_request.topic is not None:
            caller = reader.following("topic", socket_request.topic)
            topic = Topic(name=socket_request.topic)
            return engine.stream(caller.visible, after=after, topic=topic), after
        caller = reader.everything()
        topic = (
            all_of(caller)
            if socket_request.tag is None
            else Topic(tag=socket_request.tag)
        )
        return engine.stream(caller.visible, after=after, topic=topic), after

    async def _follow(
        self, subject: Subject, following: AsyncGenerator[Event, None]
    ) -> None:
        try:
            with self._server_state.streams.place(self._reader.key):
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

    async def _send(self, message: Mapping[str, Any]) -> None:
        await self._socket.send_text(orjson.dumps(message).decode())


def _read(text: str | None) -> SocketRequest:
    if text is None or len(text) > MAX_MESSAGE:
        raise InvalidInput(f"send JSON as text, at most {MAX_MESSAGE} characters")
    try:
        return SocketRequest.model_validate(body.parse(text))
    except ValidationError as error:
        told = error.errors(
            include_url=False, include_context=False, include_input=False
        )
        raise InvalidInput("the message is not valid", field_errors(told)) from None
