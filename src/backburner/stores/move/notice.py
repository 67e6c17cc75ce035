"""
Marks a store as being moved, and blocks writes to it.

From the moment a store is being left nothing in it can be written, not even by a
process that had it open: what is moved stands still, also between a kill and the run
that goes on. The notice is no part of the schema; a store that never moved has none.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import sqlalchemy as sa

FENCED: Final = "the store was moved"
"""What the fence answers to whoever writes."""
PATIENCE_SECONDS: Final = 10
"""How long writers under way may take before a fence gives up."""


class Phase(StrEnum):
    """How far a move has come, seen from one of its two stores."""

    LEAVING = "leaving"
    LEFT = "left"
    ARRIVING = "arriving"
    ARRIVED = "arrived"


class Notice(NamedTuple):
    """What a store remembers of its last move."""

    move: str
    phase: Phase
    place: str
    """The other store: host and path, no user and no password."""
    progress: str = ""
    """JSON: how far the copy is, in the store that it is made in."""


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
    Phase.LEAVING: "is being moved to {}: run `backburner move` again to go on, or "
    "`backburner move --abandon` to stay",
    Phase.LEFT: "was moved to {}",
    Phase.ARRIVING: "is not complete: a move from {} is not over; run it again",
}


def read(connection: sa.Connection) -> Notice | None:
    """Return the store's notice, if it was ever moved."""
    if not sa.inspect(connection).has_table(NAME):
        return None
    row = connection.execute(sa.select(_table)).first()
    return None if row is None else Notice(row[0], Phase(row[1]), *row[2:])


def write(connection: sa.Connection, found: Notice) -> None:
    """Put up a notice instead of the one that is there."""
    _table.create(connection, checkfirst=True)
    connection.execute(_table.delete())
    connection.execute(_table.insert(), found._asdict())


def clear(connection: sa.Connection) -> None:
    """Forget that there was a move."""
    _table.drop(connection, checkfirst=True)


def replace(connection: sa.Connection, before: Notice, after: Notice) -> bool:
    """Go from one notice to the next; say whether the first was still there."""
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
    """Say why a store is not to be opened; `None`: it may be."""
    found = read(connection)
    if found is None or found.phase is Phase.ARRIVED:
        return None
    return _WHY[found.phase].format(found.place)


def fence(connection: sa.Connection, tables: Sequence[sa.Table]) -> None:
    """Have every write refused from the next commit on, whoever makes it."""
    for statement in _FENCES[connection.dialect.name](_names(connection, tables)):
        connection.execute(sa.text(statement))


def unfence(connection: sa.Connection) -> None:
    """Let the store be written again; that there is no fence is no error."""
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
    # The code by which our own processes know that asking again may help.
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
