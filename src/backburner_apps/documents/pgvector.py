"""
Compares vectors inside PostgreSQL, where the server has the extension `vector`.

Searches use it for users whose vectors do not fit in memory (`vector_cache.py`), but
the vectors of all users are stored: a user may outgrow the memory at any time.

`documents_halfvecs` holds the vectors of `documents_vectors` in the extension's type.
It is derived data: a scheduled job creates and fills it, and `backburner move` does not
copy it. Once the table exists, every transaction that stores vectors stores them here
too; the foreign key deletes them. A search uses the table once its comment says that
it is complete. Until then, and without the extension, they are compared slice by slice.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import sqlalchemy as sa

from backburner import Context, Owner, Transaction, View, capability
from backburner_apps.documents.chunk_tables import FLOATS, vectors
from backburner_apps.documents.full_text import Filters
from backburner_apps.documents.limits import UPKEEP_QUEUE
from backburner_apps.documents.settings import DocumentsSettings

TABLE: Final = "documents_halfvecs"
COMPLETE: Final = "complete"
MAX_DIMENSION: Final = 16_000
"""The extension stores no longer vectors. Longer ones are compared in Python."""
SLICE: Final = 500
"""How many vectors one transaction copies."""
LONGEST: Final = timedelta(hours=1)
v = vectors.c

Key = tuple[str, str, str, str]

# A row of up to 4,000 dimensions stays on one page: a scan reads no TOAST table.
_CREATE: Final = (
    "CREATE EXTENSION IF NOT EXISTS vector",
    f"""
    CREATE TABLE {TABLE} (
      tenant text, "user" text, model text, content_hash text,
      embedding halfvec NOT NULL,
      PRIMARY KEY (tenant, "user", model, content_hash),
      FOREIGN KEY (tenant, "user", content_hash, model)
        REFERENCES documents_vectors (tenant, "user", content_hash, model)
        ON DELETE CASCADE
    ) WITH (toast_tuple_target = 8160)
    """,
)
_STATE: Final = sa.text(
    f"""
    SELECT (SELECT default_version FROM pg_available_extensions WHERE name = 'vector')
             AS available,
           (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS installed,
           to_regclass('{TABLE}') IS NOT NULL AS has_table,
           obj_description(to_regclass('{TABLE}'), 'pg_class') AS comment
    """  # noqa: S608 - constants
)
_INSERT: Final = sa.text(
    f"""
    INSERT INTO {TABLE} (tenant, "user", model, content_hash, embedding)
    VALUES (:tenant, :user, :model, :content_hash,
            CAST(CAST(:embedding AS real[]) AS halfvec))
    ON CONFLICT DO NOTHING
    """  # noqa: S608 - constants
)


class Extension(NamedTuple):
    """What a database has of the extension and of the table."""

    available: str | None
    installed: str | None
    has_table: bool
    comment: str | None

    @property
    def is_used(self) -> bool:
        """Whether searches may compare vectors in the database."""
        return self.comment == COMPLETE


def extension(connection: Any) -> Extension:
    """Return the state of a database; on SQLite there is never an extension."""
    if connection.dialect.name != "postgresql":
        return Extension(None, None, has_table=False, comment=None)
    return Extension(*connection.execute(_STATE).one())


def add(
    connection: Any, owner: Owner, model: str, rows: Sequence[tuple[str, int, bytes]]
) -> None:
    """
    Add vectors that the transaction has stored, if there is a table for them.

    The transaction must have written to `documents_vectors` before: it then waits for
    a transaction that creates the table, and sees it.
    """
    fitting = [row for row in rows if row[1] <= MAX_DIMENSION]
    if fitting and extension(connection).has_table:
        whose = owner.tenant, owner.user, model
        _insert(connection, [(*whose, row[0], row[2]) for row in fitting])


def fits(vector: Sequence[float]) -> bool:
    """Return whether the extension can hold a vector of this length."""
    return len(vector) <= MAX_DIMENSION


def nearest(
    view: View,
    owner: Owner,
    model: str,
    vector: Sequence[float],
    most: int,
    filters: Filters,
) -> dict[str, float]:
    """Return the hashes of the most similar texts, with their similarities."""
    values = {
        "tenant": owner.tenant,
        "user": owner.user,
        "model": model,
        "vector": list(vector),
        "size": len(vector),
        "most": most,
        **filters.given,
    }
    found = view.connection.execute(sa.text(_nearest(filters)), values)
    return {str(content_hash): float(score) for content_hash, score in found}


@capability("documents.index-vectors", queue=UPKEEP_QUEUE, timeout=LONGEST)
async def index_vectors(ctx: Context, _value: None) -> int:
    """Create the table where that is possible, and copy the vectors that it lacks."""
    if ctx.settings_of(DocumentsSettings).pgvector == "off":
        await ctx.transact(_drop)
        return 0
    if not await ctx.transact(_create):
        return 0
    count, after = 0, ("", "", "", "")
    while True:
        copied, after = await ctx.transact(_copy, after)
        count += copied
        if copied < SLICE:
            await ctx.transact(_complete)
            return count


def _create(tx: Transaction) -> bool:
    """Make sure that the table exists; return `False` where that is impossible."""
    connection: Any = tx.connection
    found = extension(connection)
    if found.has_table or found.available is None:
        return found.has_table
    try:
        # Without the right to create it, or with a version before 0.7, nothing stays.
        with connection.begin_nested():
            for statement in _CREATE:
                connection.execute(sa.text(statement))
    except sa.exc.DBAPIError:
        return False
    return True


def _drop(tx: Transaction) -> None:
    if extension(tx.connection).has_table:
        tx.connection.execute(sa.text(f"DROP TABLE {TABLE}"))


def _copy(tx: Transaction, after: Key) -> tuple[int, Key]:
    """Copy some vectors after a key; return how many, and the last key."""
    key = sa.tuple_(v.tenant, v.user, v.content_hash, v.model)
    # Locked, as a deleted vector must not be copied. What another transaction is
    # deleting is left out: whether it stays shows when the table is complete.
    query = (
        sa.select(v.tenant, v.user, v.model, v.content_hash, v.vector)
        .where(key > sa.tuple_(*after), _is_missing())
        .order_by(v.tenant, v.user, v.content_hash, v.model)
        .limit(SLICE)
        .with_for_update(read=True, key_share=True, skip_locked=True)
    )
    rows = tx.connection.execute(query).all()
    if not rows:
        return 0, after
    _insert(tx.connection, [tuple(row) for row in rows])
    tenant, user, model, content_hash, _ = rows[-1]
    return len(rows), (tenant, user, content_hash, model)


def _insert(connection: Any, rows: Sequence[tuple[str, str, str, str, bytes]]) -> None:
    names = ("tenant", "user", "model", "content_hash")
    values = [
        dict(zip(names, row, strict=False)) | {"embedding": _numbers(row[4])}
        for row in rows
    ]
    connection.execute(_INSERT, values)


def _complete(tx: Transaction) -> None:
    """Let searches use the table, unless a vector is missing."""
    missing = sa.select(sa.literal(1)).where(_is_missing()).limit(1)
    if tx.connection.execute(missing.select_from(vectors)).first() is None:
        tx.connection.execute(sa.text(f"COMMENT ON TABLE {TABLE} IS '{COMPLETE}'"))


def _is_missing() -> sa.ColumnElement[bool]:
    copy = sa.table(TABLE, *map(sa.column, ("tenant", "user", "model", "content_hash")))
    same = [copy.c[name] == v[name] for name in copy.c.keys()]  # noqa: SIM118
    there = sa.select(sa.literal(1)).select_from(copy).where(*same).correlate(vectors)
    return sa.and_(v.dimension <= MAX_DIMENSION, ~there.exists())


def _nearest(filters: Filters) -> str:
    # The subquery converts the question once; an expression would be computed per row.
    chosen = "".join(f" AND c.{name} = :{name}" for name in filters.given)
    only = f"""
       AND e.content_hash IN (
         SELECT c.content_hash FROM documents_chunks c
          WHERE c.tenant = :tenant AND c."user" = :user{chosen})
    """  # noqa: S608 - constants
    return f"""
    SELECT e.content_hash,
           -(e.embedding <#> (SELECT CAST(CAST(:vector AS real[]) AS halfvec)))
             AS score
      FROM {TABLE} e
     WHERE e.tenant = :tenant AND e."user" = :user AND e.model = :model
       AND vector_dims(e.embedding) = :size
       {only if filters.given else ""}
     ORDER BY score DESC, e.content_hash LIMIT :most
    """  # noqa: S608 - constants


def _numbers(data: bytes) -> list[float]:
    """Return the numbers of a stored vector; the extension takes finite ones only."""
    floats = np.frombuffer(data, dtype=FLOATS).astype(np.float32)
    return [*map(float, np.nan_to_num(floats, posinf=0.0, neginf=0.0))]
