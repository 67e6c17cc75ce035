"""
Stores the chunks of files, and deletes chunks with the vectors that only they used.

Every write to the chunks of a user locks the user's row first. A vector is therefore
deleted only if no chunk uses it, even if several processes write at the same time.
"""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from backburner import Context, Owner, Transaction
from backburner.tables import insert, owned_by
from backburner_apps.documents.chunk_tables import chunks, owners, vectors
from backburner_apps.documents.chunking import Chunk
from backburner_apps.documents.full_text import Words, full_text, prefix_of
from backburner_apps.documents.tables import files
from backburner_apps.documents.words import words

SLICE: Final = 200
"""Number of chunks that one transaction writes or deletes."""
c = chunks.c


class Indexed(NamedTuple):
    """A chunk with its words for the full-text index."""

    chunk: Chunk
    words: Sequence[str]


class _File(NamedTuple):
    """The file whose chunks are written."""

    owner: Owner
    id: str
    batch_id: str


async def store_chunks(
    ctx: Context, owner: Owner, file_id: str, batch_id: str, parts: Sequence[Chunk]
) -> None:
    """
    Replace the chunks of a file, one slice per transaction.

    Safe to repeat: chunks that already exist stay, others are replaced. If the file was
    deleted in the meantime, no chunks are stored.
    """
    file, kept = _File(owner, file_id, batch_id), _hashes(parts)
    for start in range(0, len(parts) or 1, SLICE):
        part = await asyncio.to_thread(indexed, parts[start : start + SLICE])
        is_last = start + SLICE >= len(parts)
        end = None if is_last else start + SLICE
        await ctx.transact(_replace, file, part, range_=(start, end), kept=kept)


def replace_chunks(
    tx: Transaction, owner: Owner, file_id: str, batch_id: str, parts: Sequence[Chunk]
) -> None:
    """
    Replace the chunks of a file in one transaction; safe to repeat.

    Use `store_chunks` for files with more than a few hundred chunks, which would exceed
    the time limit of a transaction.
    """
    file = _File(owner, file_id, batch_id)
    _replace(tx, file, indexed(parts), range_=(0, None), kept=_hashes(parts))


def indexed(parts: Sequence[Chunk]) -> list[Indexed]:
    """Split chunks into words; call it outside a transaction, as it is slow."""
    return [Indexed(chunk, [*words(chunk.text)]) for chunk in parts]


def delete_chunks(
    tx: Transaction, owner: Owner, file_ids: Sequence[str], limit: int
) -> int:
    """
    Delete up to `limit` chunks of files; return how many there were.

    Vectors that no other chunk of the owner uses are deleted with them.
    """
    lock_owner(tx, owner)
    mine = owned_by(chunks, owner) & c.file_id.in_(file_ids)
    return _delete(tx, owner, sa.select(c.seq, c.content_hash).where(mine).limit(limit))


def erase(tx: Transaction, owner: Owner, limit: int) -> int:
    """Delete up to `limit` rows of a user; return how many there were."""
    if not _number(tx.connection, owner):
        return 0
    lock_owner(tx, owner)
    some = sa.select(c.seq, c.content_hash).where(owned_by(chunks, owner)).limit(limit)
    found = _delete(tx, owner, some)
    if found:
        return found
    gone = tx.connection.execute(owners.delete().where(owned_by(owners, owner)))
    tx.connection.execute(vectors.delete().where(owned_by(vectors, owner)))
    return int(gone.rowcount)


def rebuild(connection: Any) -> None:
    """Fill the full-text index from the chunks, after `backburner move`."""
    index = full_text(connection)
    index.clear()
    numbers = {
        (row.tenant, row.user): row.number
        for row in connection.execute(owners.select())
    }
    last = 0
    while True:
        some = chunks.select().where(c.seq > last).order_by(c.seq).limit(SLICE)
        found = connection.execute(some).all()
        for row in found:
            prefix = prefix_of(numbers[row.tenant, row.user])
            index.add(prefix, [Words(row.seq, [*words(row.text)])])
        if not found:
            return
        last = found[-1].seq


def lock_owner(tx: Transaction, owner: Owner) -> int:
    """Lock a user's row, creating it if necessary; return the user's number."""
    number = _number(tx.connection, owner, is_locked=True)
    if number is None:
        zero = dict.fromkeys(("chunks", "version", "removed"), 0)
        new = {"tenant": owner.tenant, "user": owner.user, **zero}
        token = secrets.token_hex(16)
        row = insert(tx.connection, owners).values({**new, "token": token})
        tx.connection.execute(row.on_conflict_do_nothing())
        number = _number(tx.connection, owner, is_locked=True)
    return int(number or 0)


def _number(connection: Any, owner: Owner, *, is_locked: bool = False) -> int | None:
    query = sa.select(owners.c.number).where(owned_by(owners, owner))
    found = connection.execute(query.with_for_update() if is_locked else query)
    number: int | None = found.scalar_one_or_none()
    return number


def _replace(
    tx: Transaction,
    file: _File,
    parts: Sequence[Indexed],
    *,
    range_: tuple[int, int | None],
    kept: frozenset[str],
) -> None:
    """Replace the chunks of a file in a range of chunk numbers."""
    exists = sa.select(files.c.id).where(
        owned_by(files, file.owner), files.c.id == file.id
    )
    if tx.connection.execute(exists.with_for_update(read=True)).first() is None:
        return
    number = lock_owner(tx, file.owner)
    there = {
        row.number: row for row in tx.connection.execute(_within(file.id, *range_))
    }
    new = [each for each in parts if not _is_same(there.get(each.chunk.number), each)]
    wanted = {each.chunk.number: each for each in parts}
    old = [row for n, row in there.items() if not _is_same(row, wanted.get(n))]
    _delete_rows(tx, file.owner, old, kept)
    _insert(tx, file, number, new)


def _within(file_id: str, start: int, end: int | None) -> sa.Select[Any]:
    columns = sa.select(c.seq, c.number, c.page, c.content_hash)
    query = columns.where(c.file_id == file_id, c.number >= start)
    return query if end is None else query.where(c.number < end)


def _is_same(row: Any, part: Indexed | None) -> bool:
    if row is None or part is None:
        return False
    return (row.content_hash, row.page) == (part.chunk.content_hash, part.chunk.page)


def _insert(
    tx: Transaction, file: _File, number: int, parts: Sequence[Indexed]
) -> None:
    if not parts:
        return
    whose = {"tenant": file.owner.tenant, "user": file.owner.user}
    place = {"file_id": file.id, "batch_id": file.batch_id}
    rows = [{**whose, **place, **each.chunk._asdict()} for each in parts]
    tx.connection.execute(chunks.insert(), rows)
    numbers = [each.chunk.number for each in parts]
    query = sa.select(c.number, c.seq).where(
        c.file_id == file.id, c.number.between(numbers[0], numbers[-1])
    )
    seqs = {row.number: row.seq for row in tx.connection.execute(query)}
    found = [Words(seqs[each.chunk.number], each.words) for each in parts]
    full_text(tx.connection).add(prefix_of(number), found)
    _count(tx, file.owner, chunks=len(parts))


def _delete(tx: Transaction, owner: Owner, query: sa.Select[Any]) -> int:
    found = tx.connection.execute(query).all()
    _delete_rows(tx, owner, found)
    return len(found)


def _delete_rows(
    tx: Transaction,
    owner: Owner,
    rows: Sequence[Any],
    kept: frozenset[str] = frozenset(),
) -> None:
    if not rows:
        return
    seqs = [row.seq for row in rows]
    full_text(tx.connection).remove(seqs)
    tx.connection.execute(chunks.delete().where(c.seq.in_(seqs)))
    hashes = {row.content_hash for row in rows} - kept
    used = sa.select(c.seq).where(
        owned_by(chunks, owner), c.content_hash == vectors.c.content_hash
    )
    unused = vectors.delete().where(
        owned_by(vectors, owner),
        vectors.c.content_hash.in_(hashes),
        ~used.exists(),
    )
    removed = tx.connection.execute(unused).rowcount
    _count(tx, owner, chunks=-len(rows), removed=removed)


def _count(tx: Transaction, owner: Owner, **more: int) -> None:
    changes = {name: owners.c[name] + count for name, count in more.items()}
    tx.connection.execute(
        owners.update().where(owned_by(owners, owner)).values(changes)
    )


def _hashes(parts: Sequence[Chunk]) -> frozenset[str]:
    return frozenset(chunk.content_hash for chunk in parts)
