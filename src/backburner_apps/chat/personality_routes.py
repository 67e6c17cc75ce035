"""Personalities and their memories over HTTP."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar
from uuid import uuid4

import sqlalchemy as sa
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from backburner import Backburner, Throttled, Transaction, View, WorkError
from backburner.web import (
    Caller,
    OffsetQuery,
    Refusal,
    Route,
    answer,
    offset_page,
    read,
    request_id_of,
    require,
    routes_of,
    time,
)
from backburner_apps.chat import memories, personalities
from backburner_apps.chat.memories import Embedded, Memory, m
from backburner_apps.chat.personalities import Personality, PersonalityNotFound
from backburner_apps.chat.shapes import (
    MAX_MEMORY,
    NewMemory,
    NewPersonality,
    PersonalityChange,
)
from backburner_apps.chat.work import embed

T = TypeVar("T")
Reader = Annotated[Caller, require("jobs:read")]
Writer = Annotated[Caller, require("jobs:write")]
Administrator = Annotated[Caller, require("users:act")]
"""Changing a personality affects every user of its tenant."""
Words = Annotated[str, Query(max_length=MAX_MEMORY)]
LATER: Final = 5

_ALL = "/personalities"
_MEMBER = "/personalities/{personality_id}"
_MEMORIES = "/personalities/{personality_id}/memories"
_MEMORY = "/personalities/{personality_id}/memories/{memory_id}"


def routes(backburner: Backburner) -> Sequence[BaseRoute]:
    """Return the routes over an open `Backburner`."""
    service = Service(backburner)
    return routes_of(
        "chat",
        [
            Route("GET", _ALL, service.listing, "List the personalities"),
            Route("POST", _ALL, service.create, "Create a personality", NewPersonality),
            Route("GET", _MEMBER, service.show, "Read a personality"),
            Route(
                *("PATCH", _MEMBER, service.change, "Change a personality"),
                PersonalityChange,
            ),
            Route("DELETE", _MEMBER, service.delete, "Delete a personality"),
            Route("GET", _MEMORIES, service.memories, "List or search memories"),
            Route("POST", _MEMORIES, service.remember, "Create a memory", NewMemory),
            Route("DELETE", _MEMORY, service.forget, "Delete a memory"),
        ],
    )


class Service:
    """Handles the requests of the routes."""

    def __init__(self, backburner: Backburner) -> None:
        self._backburner = backburner

    async def listing(self, caller: Reader) -> Response:
        """List the personalities of the tenant, by name."""
        tenant = caller.owner.tenant
        items = await self._backburner.read(
            lambda view: personalities.listed(view, tenant)
        )
        return answer({"items": [personality.wire() for personality in items]})

    async def create(self, request: Request, caller: Administrator) -> Response:
        """Create a personality; 409 if its id is taken."""
        new, tenant = await read(request, NewPersonality), caller.owner.tenant

        def store(tx: Transaction) -> Personality:
            if personalities.count(tx, tenant) >= personalities.MOST:
                most = f"a tenant has at most {personalities.MOST} personalities"
                raise Refusal(409, "TOO_MANY_PERSONALITIES", most)
            if not personalities.create(tx, tenant, new):
                raise Refusal(409, "PERSONALITY_EXISTS", "that id is taken")
            return personalities.find(tx, tenant, new.id)

        made = await self._backburner.transact(store)
        return answer(made.wire(), 201, {"Location": f"/personalities/{made.id}"})

    async def show(self, personality_id: str, caller: Reader) -> Response:
        """Read a personality."""
        return answer((await self._find(caller, personality_id)).wire())

    async def change(
        self, request: Request, personality_id: str, caller: Administrator
    ) -> Response:
        """Change the given fields of a personality; the others stay."""
        change, tenant = await read(request, PersonalityChange), caller.owner.tenant

        def store(tx: Transaction) -> Personality:
            return personalities.change(tx, tenant, personality_id, change)

        changed = await self._found(self._backburner.transact, store)
        return answer(changed.wire())

    async def delete(self, personality_id: str, caller: Administrator) -> Response:
        """Delete a personality with its memories of all users."""
        tenant = caller.owner.tenant

        def store(tx: Transaction) -> None:
            personalities.delete(tx, tenant, personality_id)

        await self._found(self._backburner.transact, store)
        return Response(status_code=204)

    async def memories(
        self,
        request: Request,
        personality_id: str,
        caller: Reader,
        q: Words = "",
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        offset: Annotated[int, Query(ge=0, le=100_000)] = 0,
    ) -> Response:
        """List memories, newest first, or those most similar to `q`."""
        personality = await self._find(caller, personality_id)
        owner = caller.owner
        if q:
            question = await self._embedded(request, caller, q)
            similar = await memories.similar(
                self._backburner.read, personality, owner, question, limit
            )
            return answer({"items": [_wire(memory) for memory in similar]})
        query = (
            sa.select(m.id, m.content, m.created_at)
            .where(memories.visible(personality, owner))
            .order_by(m.created_at.desc(), m.id.desc())
        )
        asked = OffsetQuery(limit=limit, offset=offset)
        page = await self._backburner.read(lambda view: offset_page(view, query, asked))
        items = [
            _wire(Memory(row.id, row.content, row.created_at)) for row in page.rows
        ]
        return answer({"items": items, "total": page.total})

    async def remember(
        self, request: Request, personality_id: str, caller: Writer
    ) -> Response:
        """Create a memory of the caller."""
        new = await read(request, NewMemory)
        personality = await self._find(caller, personality_id)
        embedded = await self._embedded(request, caller, new.content)
        owner, memory_id = caller.owner, f"memory_{uuid4().hex}"

        def store(tx: Transaction) -> Memory:
            if not personalities.lock_shared(tx, owner.tenant, personality):
                raise PersonalityNotFound(personality_id)
            return memories.remember(
                tx, memory_id, owner, personality_id, new.content, embedded
            )

        made = await self._found(self._backburner.transact, store)
        place = f"/personalities/{personality_id}/memories/{made.id}"
        return answer(_wire(made), 201, {"Location": place})

    async def forget(
        self, personality_id: str, memory_id: str, caller: Writer
    ) -> Response:
        """Delete a memory of the caller."""

        def store(tx: Transaction) -> bool:
            return memories.delete(tx, caller.owner, personality_id, memory_id)

        if not await self._backburner.transact(store):
            raise Refusal(404, "MEMORY_NOT_FOUND", "you have no such memory")
        return Response(status_code=204)

    async def _find(self, caller: Caller, personality_id: str) -> Personality:
        tenant = caller.owner.tenant

        def look(view: View) -> Personality:
            return personalities.find(view, tenant, personality_id)

        return await self._found(self._backburner.read, look)

    async def _found(self, run: Any, body: Callable[[Any], T]) -> T:
        """Run a body; answer 404 if the personality does not exist."""
        try:
            result: T = await run(body)
        except PersonalityNotFound as error:
            raise Refusal(404, error.code, str(error)) from None
        return result

    async def _embedded(self, request: Request, caller: Caller, text: str) -> Embedded:
        """Return the vector of a text, within the caller's budgets."""
        try:
            return await self._backburner.run(
                embed,
                text,
                owner=caller.owner,
                key=caller.key,
                request_id=request_id_of(request),
            )
        except WorkError as error:
            status = 503 if error.retryable else 502
            asked = error.retry_after if isinstance(error, Throttled) else None
            wait = max(1, round(asked or LATER)) if error.retryable else None
            raise Refusal(
                status, error.problem_code, str(error), retry_after=wait
            ) from None


def _wire(memory: Memory) -> dict[str, Any]:
    return {
        "id": memory.id,
        "content": memory.content,
        "createdAt": time(memory.created_at),
    }
