"""Helpers for flows and batches, on both databases."""

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from backburner.domain.errors import IdempotencyConflict, StoreUnavailable
from backburner.domain.groups.batch import BatchState, NewBatch
from backburner.domain.groups.flow import FlowState, NewFlow
from backburner.domain.jobs.job import Instant, Owner, Submitted, Visibility
from backburner.ports.store.flows import GroupFilter
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.shared.job_filters import has_tag
from backburner.stores.shared.paging import newest, seen_without_index
from backburner.stores.shared.settling import KEY_LIFETIME_MS, as_json, tags_text
from backburner.stores.tables import batches, events

G = TypeVar("G", NewFlow, NewBatch)

TRIES = 3
OPENED = {"flows": FlowState.RUNNING, "batches": BatchState.OPEN}
KINDS = {"flows": "flow", "batches": "batch"}


def insert(
    tx: InternalTx,
    table: sa.Table,
    wanted: Sequence[G],
    more: Callable[[G], dict[str, Any]],
    first: str,
) -> list[tuple[Submitted, int]]:
    """Store groups with their first events; an existing group returns the key 0."""
    numbers = tx.draw(table.name, len(wanted))
    rows = [
        {"seq": seq, **_row(group), **more(group)}
        for seq, group in zip(numbers, wanted, strict=True)
    ]
    plain = [row for row in rows if row["idempotency_key"] is None]
    if plain:
        tx.connection.execute(table.insert(), plain)
    # In order of the keys, so that two transactions with the same groups cannot
    # deadlock.
    stored = {
        row["seq"]: _inserted(tx, table, row) for row in sorted(rows, key=_by_key)
    }
    answers = [stored[row["seq"]] for row in rows]
    kind = KINDS[table.name]
    first_events = [
        {
            kind: seq,
            "n": 1,
            "type": first,
            "at": group.created_at,
            "tenant": group.owner.tenant,
            "user": group.owner.user,
        }
        for group, (_, seq) in zip(wanted, answers, strict=True)
        if seq
    ]
    if first_events:
        tx.connection.execute(events.insert(), first_events)
    return answers


class _Keyed(NamedTuple):
    """The statements for groups with a key, built once for each table."""

    insert: Any
    free: sa.Update
    find: sa.Select[Any]


@cache
def _keyed(table: sa.Table, dialect: str) -> _Keyed:
    c = table.c
    is_same = (
        c.tenant == sa.bindparam("of_tenant"),
        c.user == sa.bindparam("of_user"),
        c.idempotency_key == sa.bindparam("of_key"),
    )
    known = {"sqlite": sqlite, "postgresql": postgresql}[dialect]
    is_old = c.created_at < sa.bindparam("horizon")
    return _Keyed(
        known.insert(table).on_conflict_do_nothing(),
        table.update().where(*is_same, is_old).values(idempotency_key=None),
        sa.select(c.id, c.state, c.body_hash).where(*is_same),
    )


def _by_key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["tenant"], row["user"], row["idempotency_key"] or ""


def _inserted(
    tx: InternalTx, table: sa.Table, row: dict[str, Any]
) -> tuple[Submitted, int]:
    key = row["idempotency_key"]
    if key is None:
        return Submitted(row["id"], row["state"]), row["seq"]
    run, keyed = tx.connection.execute, _keyed(table, tx.connection.dialect.name)
    same = {"of_tenant": row["tenant"], "of_user": row["user"], "of_key": key}
    horizon = row["created_at"] - KEY_LIFETIME_MS
    for _ in range(TRIES):
        if run(keyed.insert, row).rowcount:
            return Submitted(row["id"], row["state"]), row["seq"]
        if run(keyed.free, {**same, "horizon": horizon}).rowcount:
            continue
        known = run(keyed.find, same).first()
        if known is not None:
            if known.body_hash != row["body_hash"]:
                raise IdempotencyConflict(
                    "this idempotency key was used with another request body"
                )
            return Submitted(known.id, known.state, replayed=True), 0
    raise StoreUnavailable("the idempotency key is in use; ask again")


def _row(group: NewFlow | NewBatch) -> dict[str, Any]:
    return {
        "id": group.id,
        "tenant": group.owner.tenant,
        "user": group.owner.user,
        "generation": 0,
        "events": 1,
        "created_at": group.created_at,
        "callback": group.callback,
        "tags": tags_text(group),
        "request_id": group.request_id,
        "traceparent": group.traceparent,
        "idempotency_key": group.idempotency_key,
        "body_hash": group.body_hash,
    }


def fields(row: Any) -> dict[str, Any]:
    """Return the fields of a record that flows and batches have in common."""
    return {
        "seq": row.seq,
        "id": row.id,
        "owner": Owner(row.tenant, row.user),
        "generation": row.generation,
        "events": row.events,
        "created_at": row.created_at,
        "finished_at": row.finished_at,
        "callback": row.callback,
        "tags": tuple(row.tags.split("\n")) if row.tags else (),
        "request_id": row.request_id,
        "traceparent": row.traceparent,
        "body_hash": row.body_hash,
    }


def reopen(tx: InternalTx, table: sa.Table, seqs: Collection[int], at: Instant) -> None:
    """
    Reopen ended groups in their next generation.

    The caller must have locked them.
    """
    if not seqs:
        return
    opened = OPENED[table.name]
    again: dict[str, Any] = {
        "generation": table.c.generation + 1,
        "state": opened,
        "finished_at": None,
        "events": table.c.events + 1,
    }
    if table is batches:
        again |= {"told": 0, "counts": None}
    over = table.update().where(table.c.seq.in_(seqs), table.c.state != opened)
    reopening = over.values(again).returning(
        table.c.seq,
        table.c.events,
        table.c.generation,
        table.c.tenant,
        table.c.user,
    )
    kind = KINDS[table.name]
    rows = [
        {
            kind: seq,
            "n": n,
            "type": f"{kind}.reopened",
            "at": at,
            "data": as_json({"generation": generation}),
            "tenant": tenant,
            "user": user,
        }
        for seq, n, generation, tenant, user in tx.connection.execute(reopening)
    ]
    if rows:
        tx.connection.execute(events.insert(), rows)


def in_batch(batch: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Select members whose batch exists, so that it can be counted again."""
    return sa.exists().where(batches.c.seq == batch)


def page(
    connection: sa.Connection,
    query: sa.Select[Any],
    table: sa.Table,
    where: GroupFilter,
    limit: int,
    *,
    before: int | None,
) -> list[Any]:
    """Return the groups of a table that match a filter, newest first."""
    t = table.c
    if where.state is not None:
        query = query.where(t.state == where.state)
    if where.tag is not None:
        query = query.where(has_tag(t.tags, where.tag))
    owner: Visibility | None = where.owner
    if where.batch is not None:
        # With a batch given, its index has fewer rows than that of the owners.
        query, owner = query.where(*seen_without_index(where.owner, t)), None
    return newest(connection, query, table, owner, limit, before=before)
