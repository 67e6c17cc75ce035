"""
Moves a store: all rows are copied and compared, then the old store is closed.

    source   ·       leaving ──────────────────────────▶ left
    target       ·           arriving (copy, compare)          ▶ arrived

Each arrow is one transaction. The copy is a series of transactions, each with the key
it has reached, so an interrupted move resumes where it was. Between the first arrow and
the last, neither store can be opened, so that no process works on both.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import orjson
import sqlalchemy as sa

from backburner.domain.errors import BackburnerError
from backburner.ports.faults import Faults
from backburner.ports.history import History
from backburner.ports.store.workers import WorkerInfo
from backburner.stores import migrations
from backburner.stores.move import contents, notice
from backburner.stores.move.applications import AppSchema
from backburner.stores.move.contents import EVERY, MOVED, Key, Row, delete_all
from backburner.stores.move.notice import Notice, Phase

T = TypeVar("T")

CHUNK: Final = 1_000
"""How many rows are moved by one transaction; a row may have up to 128 KiB."""


class MoveRefused(BackburnerError):
    """The move cannot start or continue; nothing was changed."""

    code = "MOVE_REFUSED"


class CopyDiffers(BackburnerError):
    """The copy differs from the original; the old store is still in use."""

    code = "COPY_DIFFERS"


class Side(Protocol):
    """One of the two stores, as a move reads and writes it even while it is closed."""

    @property
    def place(self) -> str:
        """Its location: host and path, without user and password."""
        ...

    async def read(self, body: Callable[[sa.Connection], T]) -> T:
        """Run a read-only body."""
        ...

    async def transact(self, body: Callable[[sa.Connection], T]) -> T:
        """Run a body in one durable transaction."""
        ...

    async def fill(
        self,
        table: sa.Table,
        rows: Sequence[Row],
        note: Callable[[sa.Connection], None],
    ) -> None:
        """Insert rows and update the notice in one durable transaction."""
        ...

    async def rework(self, body: Callable[[sa.Connection], T]) -> T:
        """Run a body in one durable transaction without a time limit."""
        ...

    async def alive(self, lease: timedelta) -> Sequence[WorkerInfo]:
        """Remove workers whose lease has expired; return the others."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class Movable(Protocol):
    """A store that can be moved, whether it is open or not."""

    async def version(self, history: History = ...) -> str | None:
        """Return the revision of the schema; `None` if there is none."""
        ...

    async def migrate(self, history: History = ...) -> object:
        """Bring the schema up to date."""
        ...

    def side(self) -> Side:
        """Return the access to the store for a move."""
        ...


class Moved(NamedTuple):
    """A table that was copied."""

    table: str
    rows: int
    digest: str
    """SHA-256 of its rows in the order of their keys; equal on both sides."""


class Options(NamedTuple):
    """How to move."""

    lease: timedelta
    replace: bool = False
    """Whether to overwrite an earlier or an incomplete move in the target."""
    chunk: int = CHUNK
    tables: Sequence[sa.Table] = MOVED
    apps: Sequence[AppSchema] = ()
    """The applications whose tables are moved as well."""


class Mover:
    """Moves one store into another; create a new one for each run."""

    def __init__(
        self,
        source: Movable,
        target: Movable,
        options: Options,
        faults: Faults,
        tell: Callable[[str, str, int], None],
    ) -> None:
        """`tell` is called with the step, the table and the number of its rows."""
        self._stores = source, target
        self._source, self._target = source.side(), target.side()
        self._options = options
        self._of_apps = [table for app in options.apps for table in app.tables]
        self._tables = [*options.tables, *self._of_apps]
        self._faults = faults
        self._tell = tell

    async def run(
        self, move: str, carry: Callable[[], object] = lambda: None
    ) -> Sequence[Moved]:
        """
        Move, or resume a move that was interrupted; `move` is the id of a new one.

        `carry` copies what is outside the store, such as blobs; it may be called again.
        """
        try:
            return await self._run(move, carry)
        finally:
            await self._source.close()
            await self._target.close()

    async def _run(self, move: str, carry: Callable[[], object]) -> Sequence[Moved]:
        await self._check_schemas()
        here = await self._source.read(notice.read)
        there = await self._target.read(notice.read)
        if here is None or here.phase is not Phase.LEFT:
            here, there = await self._set_out(here, there, move)
            await self._prepare(there)
            await self._copy(there)
            await asyncio.to_thread(carry)
            there = await self._target.read(notice.read)
        if there is None or there.move != here.move:
            raise MoveRefused(f"{self._source.place} was moved to {here.place}")
        moved = await self._compare() if here.phase is Phase.LEAVING else []
        await self._step(self._source, here, here._replace(phase=Phase.LEFT), "left")
        arrived = there._replace(phase=Phase.ARRIVED, progress="")
        await self._step(self._target, there, arrived, "arrived")
        return moved

    async def _check_schemas(self) -> None:
        source, target = self._stores
        version = await source.version()
        if version != migrations.HEAD:
            state = "is empty" if version is None else f"is at schema {version}"
            raise MoveRefused(f"{self._source.place} {state}: there is nothing to move")
        if self._source.place == self._target.place:
            raise MoveRefused("a store cannot be moved to where it is")
        version = await target.version()
        if version is None:
            await target.migrate()
        elif version != migrations.HEAD:
            raise MoveRefused(
                f"{self._target.place} is at schema {version}, this release needs "
                f"{migrations.HEAD}"
            )
        names = [table.name for table in (*EVERY, *self._of_apps)]
        for name in {name for name in names if names.count(name) > 1}:
            raise MoveRefused(f"two applications declare the table {name}")
        for app in self._options.apps:
            await self._check_app(app.history)

    async def _check_app(self, history: History) -> None:
        for store, place, also in (
            (self._stores[0], self._source.place, ()),
            (self._stores[1], self._target.place, (None,)),
        ):
            version = await store.version(history)
            if version not in {history.head, *also}:
                raise MoveRefused(
                    f"{place}: the tables of application {history.name!r} are at "
                    f"{version or 'none'}, its release needs {history.head}: run "
                    f"`backburner migrate --app {history.name}` there"
                )

    async def _prepare(self, there: Notice) -> None:
        """Create the applications' tables, without rows that their revisions insert."""
        _, target = self._stores
        for app in self._options.apps:
            if await target.version(app.history) is None:
                await target.migrate(app.history)
        if self._of_apps and not there.progress:
            await self._target.transact(lambda c: delete_all(c, self._of_apps))
            self._faults.hit("move.prepared")

    async def _set_out(
        self, here: Notice | None, there: Notice | None, move: str
    ) -> tuple[Notice, Notice]:
        """Block writes to both stores; return their notices."""
        leaving = Notice(move, Phase.LEAVING, self._target.place)
        if here is not None and here.phase is Phase.LEAVING:
            leaving = here
        await self._check_target(leaving, there)
        if leaving is not here:
            await self._leave(here, leaving)
        if there is not None and self._is_replaced(there):
            await self._target.transact(lambda c: _empty(c, self._of_apps))
            self._faults.hit("move.emptied")
        elif there is not None and _is_begun(leaving, there):
            return leaving, there
        arriving = Notice(leaving.move, Phase.ARRIVING, self._source.place)
        await self._target.transact(lambda c: notice.write(c, arriving))
        self._faults.hit("move.arriving")
        return leaving, arriving

    async def _check_target(self, leaving: Notice, there: Notice | None) -> None:
        """Refuse a target that is in use."""
        if there is not None and _is_begun(leaving, there):
            return
        if leaving.place != self._target.place:
            raise MoveRefused(
                f"{self._source.place} is being moved to {leaving.place}: name that, "
                "or stop that move with --abandon"
            )
        if there is not None and there.phase is not Phase.ARRIVED:
            if not self._is_replaced(there):
                raise MoveRefused(_OTHERS[there.phase].format(self._target.place))
            return
        known = (*EVERY, *self._of_apps)
        used = await self._target.read(lambda c: contents.first_used(c, known))
        if used is not None:
            raise MoveRefused(f"{self._target.place} is not empty: {used} has rows")

    def _is_replaced(self, there: Notice) -> bool:
        return self._options.replace and there.phase in {Phase.LEFT, Phase.ARRIVING}

    async def _leave(self, here: Notice | None, leaving: Notice) -> None:
        if here is not None and here.phase is Phase.ARRIVING:
            raise MoveRefused(f"{self._source.place}: a move into it is not finished")
        alive = await self._source.alive(self._options.lease)
        if alive:
            named = ", ".join(f"pid {worker.pid} on {worker.host}" for worker in alive)
            raise MoveRefused(f"workers are alive: stop them first ({named})")
        await self._source.transact(lambda c: _leave(c, leaving, self._of_apps))
        self._faults.hit("move.leaving")

    async def _copy(self, there: Notice) -> None:
        """Copy what is missing; the notice says how far the copy has come."""
        progress = orjson.loads(there.progress or "{}")
        names = [table.name for table in self._tables]
        if progress and progress["table"] not in names:
            raise MoveRefused(
                f"this move has already copied rows of table {progress['table']}: name "
                "the same applications again, or start again with --replace"
            )
        begun_at = names.index(progress["table"]) if progress else 0
        for place, table in enumerate(self._tables[begun_at:]):
            begun = {} if place else progress
            there = await self._copy_table(
                there, table, begun.get("after"), begun.get("rows", 0)
            )
        tables = self._tables
        values = await self._source.read(lambda c: contents.counters(c, tables))
        await self._target.transact(lambda c: contents.set_counters(c, tables, values))
        for app in self._options.apps:
            if app.rebuild is not None:
                await self._target.rework(app.rebuild)
                self._faults.hit("move.rebuilt")
        await self._target.transact(lambda c: contents.analyse(c, tables))
        self._faults.hit("move.counted")

    async def _copy_table(
        self, there: Notice, table: sa.Table, after: Key | None, rows: int
    ) -> Notice:
        while found := await self._page(self._source, table, after):
            after, rows = contents.key(table, found[-1]), rows + len(found)
            came_to = {"table": table.name, "after": after, "rows": rows}
            then = there._replace(progress=orjson.dumps(came_to).decode())
            await self._target.fill(table, found, self._noting(there, then))
            there = then
            self._faults.hit("move.copied")
            self._tell("copied", table.name, rows)
        return there

    def _noting(self, before: Notice, after: Notice) -> Callable[[sa.Connection], None]:
        note = _noting(before, after)

        def noting(connection: sa.Connection) -> None:
            note(connection)
            self._faults.hit("move.copying")

        return noting

    async def _compare(self) -> Sequence[Moved]:
        """Compare both sides row by row."""
        moved = [await self._compare_table(table) for table in self._tables]
        ours, theirs = await asyncio.gather(
            *(
                side.read(lambda c: contents.counters(c, self._tables))
                for side in (self._source, self._target)
            )
        )
        if ours != theirs:
            raise CopyDiffers(f"the copy counts {theirs}, not {ours}")
        self._faults.hit("move.compared")
        return moved

    async def _compare_table(self, table: sa.Table) -> Moved:
        after, rows, seal = None, 0, hashlib.sha256()
        while True:
            ours, theirs = await asyncio.gather(
                self._page(self._source, table, after),
                self._page(self._target, table, after),
            )
            difference = contents.difference(table, ours, theirs)
            if difference is not None:
                raise CopyDiffers(f"{table.name}: {difference}")
            if not ours:
                return Moved(table.name, rows, seal.hexdigest())
            seal.update(orjson.dumps(theirs, default=_as_text))
            after, rows = contents.key(table, ours[-1]), rows + len(ours)
            self._tell("compared", table.name, rows)

    async def _page(
        self, side: Side, table: sa.Table, after: Key | None
    ) -> Sequence[Row]:
        chunk = self._options.chunk
        return await side.read(lambda c: contents.page(c, table, after, chunk))

    async def _step(self, side: Side, before: Notice, after: Notice, name: str) -> None:
        """Take one of the last two steps, unless it was already taken."""
        if before.phase is not after.phase:
            await side.transact(_noting(before, after))
            self._faults.hit(f"move.{name}")


async def abandon(source: Side) -> str:
    """Abandon a move in progress; return the place of its target."""
    try:
        return await source.transact(lambda c: _stay(c, source.place))
    finally:
        await source.close()


_OTHERS: Final = {
    Phase.LEAVING: "{} is being moved itself",
    Phase.LEFT: "{} was moved away from; --replace deletes what is left there",
    Phase.ARRIVING: "{} holds another move that is not over; --replace deletes it",
}


def _noting(before: Notice, after: Notice) -> Callable[[sa.Connection], None]:
    def note(connection: sa.Connection) -> None:
        if not notice.replace(connection, before, after):
            raise MoveRefused("another run of this move is in progress")

    return note


def _is_begun(leaving: Notice, there: Notice) -> bool:
    return there.phase is Phase.ARRIVING and there.move == leaving.move


def _as_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _leave(
    connection: sa.Connection, leaving: Notice, of_apps: Sequence[sa.Table]
) -> None:
    notice.fence(connection, (*EVERY, *of_apps))
    enlisted = contents.first_used(
        connection, [table for table in EVERY if table.name == "workers"]
    )
    if enlisted:
        raise MoveRefused("a worker has just started: stop it first")
    notice.write(connection, leaving)


def _stay(connection: sa.Connection, place: str) -> str:
    found = notice.read(connection)
    if found is None or found.phase is not Phase.LEAVING:
        is_left = found is not None and found.phase is Phase.LEFT
        reason = notice.why_closed(connection) if is_left else "is not being moved"
        raise MoveRefused(f"{place} {reason}")
    notice.unfence(connection)
    notice.clear(connection)
    return found.place


def _empty(connection: sa.Connection, of_apps: Sequence[sa.Table]) -> None:
    """Empty a store, as if it were new."""
    notice.unfence(connection)
    delete_all(connection, of_apps)
    notice.clear(connection)
    contents.empty(connection)
    migrations.downgrade(connection, "base")
    migrations.upgrade(connection)
