"""
Marks a store as being moved, and blocks writes to it.

From the moment a store is marked nothing in it can be written, not even by a process
that has it open: its data do not change, also between an interrupted move and its
resumption. The notice is not part of the schema; only moved stores have one.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import sqlalchemy as sa

FENCED: Final = "the store was moved"
"""The error message of blocked writes."""
PATIENCE_SECONDS: Final = 10
"""How long to wait for running transactions before the block fails."""


class Phase(StrEnum):
    """The progress of a move, seen from one of its two stores."""

    LEAVING = "leaving"
    LEFT = "left"
    ARRIVING = "arriving"
    ARRIVED = "arrived"


class Notice(NamedTuple):
    """What a store records of its last move."""

    move: str
    phase: Phase
    place: str
    """The other store: host and path, without user and password."""
    progress: str = ""
    """JSON: how far the copy has come, recorded in the target."""


_table = sa.Table(
    "backburner_move",
    sa.MetaData(),
    sa.Column("move", sa.Text, primary_key=True),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("place", sa.Text, nullable=False),
    sa.Column("progress", sa.Text, nullable=False),
)
NAME: Final = _table.name

_WHY: Final = {
    Phase.LEAVING: "is being moved to {}: run `backburner move` again to continue, or "
    "`backburner move --abandon` to keep this store",
    Phase.LEFT: "was moved to {}",
    Phase.ARRIVING: "is incomplete: run the move from {} again",
}


def read(connection: sa.Connection) -> Notice | None:
    """Return the notice of a store, if it was ever moved."""
    if not sa.inspect(connection).has_table(NAME):
        return None
    row = connection.execute(sa.select(_table)).first()
    return None if row is None else Notice(row[0], Phase(row[1]), *row[2:])


def write(connection: sa.Connection, found: Notice) -> None:
    """Store a notice, replacing any other."""
    _table.create(connection, checkfirst=True)
    connection.execute(_table.delete())
    connection.execute(_table.insert(), found._asdict())


def clear(connection: sa.Connection) -> None:
    """Remove the notice."""
    _table.drop(connection, checkfirst=True)


def replace(connection: sa.Connection, before: Notice, after: Notice) -> bool:
    """Replace a notice by the next one; return whether the first was still there."""
    changed = connection.execute(
        _table.update()
        .where(
            _table.c.move == before.move,
            _table.c.phase == before.phase,
            _table.c.progress == before.progress,
        )
        .values(after._asdict())
    )
    return changed.rowcount == 1


def why_closed(connection: sa.Connection) -> str | None:
    """Return why a store must not be opened; `None` if it may be."""
    found = read(connection)
    if found is None or found.phase is Phase.ARRIVED:
        return None
    return _WHY[found.phase].format(found.place)


def fence(connection: sa.Connection, tables: Sequence[sa.Table]) -> None:
    """Block all writes from the next commit on."""
    for statement in _FENCES[connection.dialect.name](_names(connection, tables)):
        connection.execute(sa.text(statement))


def unfence(connection: sa.Connection) -> None:
    """Allow writes again; it is no error if they are not blocked."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("DROP FUNCTION IF EXISTS backburner_moved CASCADE"))
        return
    quote = connection.dialect.identifier_preparer.quote
    for name in connection.execute(_TRIGGERS).scalars().all():
        connection.execute(sa.text(f"DROP TRIGGER {quote(name)}"))


_VERBS: Final = ("insert", "update", "delete")
_TRIGGERS: Final = sa.text(
    "SELECT name FROM sqlite_master "
    "WHERE type = 'trigger' AND name GLOB 'backburner_moved_*'"
)


def _names(
    connection: sa.Connection, tables: Iterable[sa.Table]
) -> Sequence[tuple[str, str]]:
    quote = connection.dialect.identifier_preparer.quote
    return [(table.name, quote(table.name)) for table in tables]


def _sqlite(names: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, quoted in names:
        for verb in _VERBS:
            yield (
                f'CREATE TRIGGER "backburner_moved_{name}_{verb}" '
                f"BEFORE {verb} ON {quoted} "
                f"BEGIN SELECT RAISE(ABORT, '{FENCED}'); END"
            )


def _postgres(names: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f"SET LOCAL lock_timeout = '{PATIENCE_SECONDS}s'"
    # The error code that tells our own processes that a retry may succeed.
    yield (
        "CREATE FUNCTION backburner_moved() RETURNS trigger LANGUAGE plpgsql AS "
        f"'BEGIN RAISE EXCEPTION ''{FENCED}'' "
        "USING ERRCODE = ''read_only_sql_transaction''; END'"
    )
    for _, quoted in names:
        yield (
            "CREATE TRIGGER backburner_moved "
            f"BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {quoted} "
            "FOR EACH STATEMENT EXECUTE FUNCTION backburner_moved()"
        )


_FENCES: Final = {"sqlite": _sqlite, "postgresql": _postgres}
