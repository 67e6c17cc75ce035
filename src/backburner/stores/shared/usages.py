"""Usage of models, on both databases."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeVar

import sqlalchemy as sa

from backburner.domain.costs.usage import NOTHING, RunUsage, Spent, Usage
from backburner.domain.jobs.job import Instant
from backburner.ports.store.jobs import Settlement
from backburner.ports.store.usage import RecordedCall, UsageFilter
from backburner.stores.shared.access import Access
from backburner.stores.shared.ledger import (
    LedgerTx,
    book_late,
    book_used,
    rules_of,
    shrink,
)
from backburner.stores.tables import usages as table

T = TypeVar("T")
c = table.c
DAY_MS = 86_400_000
MINUTE_MS = 60_000


class Booked(NamedTuple):
    """A call's values for the statement; the rest is read from the job."""

    job: int
    token: str | None
    generation: int | None
    epoch: int
    n: int
    at: Instant
    model: str
    provider: str | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost: int | None
    price_version: str | None
    duration_ms: int | None


class BookTx(LedgerTx, Protocol):
    """A transaction of either database."""

    def lock_booked(self, seqs: Sequence[int]) -> None:
        """Lock the flows of jobs against changes, before the jobs are locked."""
        ...

    def book(self, calls: Sequence[Booked]) -> Sequence[Any]:
        """Store model calls; return the jobs of new ones, and whether each is late."""
        ...


def book_settled(
    tx: BookTx, settlements: Sequence[Settlement], applied: Collection[int]
) -> None:
    """Store the usage of settled runs; a waiting job then keeps only what it used."""
    calls = [
        _booked(s.seq, None, None, s.epoch, n, call)
        for s in settlements
        if s.usage and s.seq in applied
        for n, call in enumerate(s.usage)
    ]
    if calls:
        tx.book(calls)
    # The holds of jobs that ended are closed, including all that they used.
    held = [
        s
        for s in settlements
        if s.consequences is not None
        and s.consequences.holds
        and not s.change.to.is_final
        and s.seq in applied
    ]
    book_used(tx, [s.seq for s in held if s.usage])
    shrink(tx, [s.seq for s in held if s.change.wait is not None])


def book_calls(tx: BookTx, bookings: Sequence[RunUsage]) -> None:
    """Store the usage of runs, each call once; calls of lost runs are late."""
    calls = [
        _booked(b.seq, b.token, b.generation, b.epoch, n, call)
        for b in bookings
        for n, call in enumerate(b.calls)
    ]
    if calls:
        tx.lock_booked([booking.seq for booking in bookings])
    booked = tx.book(calls) if calls else ()
    late = {job for job, is_late in booked if is_late}
    if booked and rules_of(tx):
        book_used(tx, sorted({job for job, _ in booked}))
    if late:
        book_late(tx, sorted(late))


def _booked(
    job: int,
    token: str | None,
    generation: int | None,
    epoch: int,
    n: int,
    call: Usage,
) -> Booked:
    return Booked(
        job,
        token,
        generation,
        epoch,
        n,
        call.at,
        call.model,
        call.provider,
        call.input_tokens,
        call.output_tokens,
        call.cached_tokens,
        call.cost,
        call.price_version,
        call.duration_ms,
    )


class Usages(Access, Protocol):
    """The operations of `UsageStore`, on both databases."""

    async def internal_transaction(self, body: Callable[[Any], T]) -> T:
        """Run a body in its own durable transaction."""
        ...

    async def book(self, bookings: Sequence[RunUsage]) -> None:
        await self.internal_transaction(lambda tx: book_calls(tx, bookings))

    async def spent(
        self, seqs: Sequence[int], *, with_late: bool = True
    ) -> Mapping[int, Spent]:
        if not seqs:
            return {}
        only = () if with_late else (sa.not_(c.late),)
        return await self.read(lambda r: spent(r, seqs, *only))

    async def calls_of(
        self, job: int, *, after: int = 0, limit: int
    ) -> Sequence[RecordedCall]:
        return await self.read(lambda r: _calls_of(r, job, after, limit))

    async def spent_before(self, job: int, *, generation: int, epoch: int) -> Spent:
        earlier = (c.generation == generation, c.epoch < epoch)
        by_job = await self.read(lambda r: spent(r, [job], *earlier))
        return by_job.get(job, NOTHING)

    async def sums(
        self, where: UsageFilter, by: str, *, limit: int
    ) -> tuple[Spent, Sequence[tuple[str, Spent]]]:
        return await self.read(lambda connection: _sums(connection, where, by, limit))

    async def forget_usage(self, *, before: Instant, limit: int) -> int:
        # The first rows are the oldest, except for a few that were stored late.
        first = sa.select(c.seq).order_by(c.seq).limit(limit)
        forget = sa.delete(table).where(c.seq.in_(first), c.at < before)
        return await self.transact(
            lambda tx: int(tx.connection.execute(forget).rowcount)
        )


def sums_of(c: sa.ColumnCollection[str, Any]) -> Sequence[sa.ColumnElement[Any]]:
    """Return the sums that `spent_of` reads, over calls with these columns."""
    return (
        sa.func.count(),
        sa.func.sum(c.input_tokens),
        sa.func.sum(c.output_tokens),
        sa.func.sum(c.cached_tokens),
        sa.func.coalesce(sa.func.sum(c.cost), 0),
        sa.func.count() - sa.func.count(c.cost),
        sa.func.sum(sa.case((c.late, 1), else_=0)),
        sa.func.count(c.job.distinct()),
    )


_SUMS: Sequence[sa.ColumnElement[Any]] = sums_of(c)


_USED = tuple(c[name] for name in Usage._fields)


def _calls_of(
    connection: sa.Connection, job: int, after: int, limit: int
) -> list[RecordedCall]:
    query = sa.select(c.seq, c.generation, c.epoch, c.late, *_USED)
    query = query.where(c.job == job, c.seq > after).order_by(c.seq).limit(limit)
    return [
        RecordedCall(seq, generation, epoch, Usage(*used), bool(late))
        for seq, generation, epoch, late, *used in connection.execute(query)
    ]


def spent(
    connection: sa.Connection, seqs: Sequence[int], *only: sa.ColumnElement[bool]
) -> dict[int, Spent]:
    """Add up the usage of jobs, restricted by the conditions `only`."""
    by_job: dict[int, Spent] = {}
    query = (
        sa.select(c.job, c.model, c.price_version, *_SUMS)
        .where(c.job.in_(seqs), *only)
        .group_by(c.job, c.model, c.price_version)
    )
    for job, model, version, *sums in connection.execute(query):
        versions = () if version is None else (version,)
        more = replace(spent_of(sums), models=(model,), price_versions=versions)
        by_job[job] = replace(by_job.get(job, NOTHING) + more, jobs=1)
    return by_job


IN_ORDER = {"day", "minute"}
_BETWEEN = "\x7f"
_KEYS = {
    "capability": c.capability,
    "day": c.at // DAY_MS,
    "minute": c.at // MINUTE_MS,
    "model": c.model,
    "tag": c.tags,
    "user": c.user,
}


def conditions_of(where: UsageFilter) -> list[sa.ColumnElement[bool]]:
    """Return the conditions of a filter."""
    conditions = [c.tenant == where.tenant]
    if where.user is not None:
        conditions.append(c.user == where.user)
    if where.since is not None:
        conditions.append(c.at >= where.since)
    if where.until is not None:
        conditions.append(c.at < where.until)
    return conditions


def _sums(
    connection: sa.Connection, where: UsageFilter, by: str, limit: int
) -> tuple[Spent, list[tuple[str, Spent]]]:
    conditions = conditions_of(where)
    whole = connection.execute(sa.select(*_SUMS).where(*conditions)).one()
    sums = [one.label(f"sum_{n}") for n, one in enumerate(_SUMS)]
    groups = sa.select(_KEYS[by].label("key"), *sums).where(*conditions)
    found = groups.group_by(_KEYS[by]).cte("found")
    if by == "tag":
        found = _by_tag(connection, found)
    # The database sorts and cuts: there may be a group for each minute or job.
    key, _, read, written, *_ = found.c
    order = (key,) if by in IN_ORDER else ((read + written).desc(), key)
    rows = connection.execute(sa.select(found).order_by(*order).limit(limit))
    return spent_of(whole), [(_named(by, key), spent_of(sums)) for key, *sums in rows]


def _by_tag(connection: sa.Connection, found: sa.CTE) -> sa.CTE:
    """Return the sums of each tag, from those of each set of tags."""
    tags, *sums = found.c
    each = _each_of(connection.dialect.name, tags)
    [tag] = each.c
    added = [sa.func.sum(one).label(one.name) for one in sums]
    query = sa.select(tag.label("key"), *added).join_from(found, each, sa.true())
    return query.where(tags != "").group_by(tag).cte("tagged")


def _each_of(dialect: str, tags: sa.ColumnElement[str]) -> sa.TableValuedAlias:
    """Return a table with each of the tags, which are separated by line breaks."""
    if dialect == "postgresql":
        split = sa.func.string_to_array(tags, "\n")
        return sa.func.unnest(split).table_valued("tag").render_derived()
    # In JSON a line break is written like a backslash and an n: another character that
    # no tag contains takes its place.
    text = sa.func.json_quote(sa.func.replace(tags, "\n", _BETWEEN))
    array = "[" + sa.func.replace(text, _BETWEEN, '","') + "]"
    return sa.func.json_each(array).table_valued("value")


def spent_of(sums: Iterable[Any]) -> Spent:
    """Convert the sums of `sums_of`."""
    calls, read, written, cached, cost, unpriced, late, jobs = (
        int(value or 0) for value in sums
    )
    return Spent(calls, read, written, cached, cost, unpriced, late, jobs)


def _named(by: str, key: Any) -> str:
    if by == "day":
        day = datetime.fromtimestamp(key * DAY_MS / 1000, tz=UTC)
        return day.date().isoformat()
    if by == "minute":
        minute = datetime.fromtimestamp(key * MINUTE_MS / 1000, tz=UTC)
        return minute.strftime("%Y-%m-%dT%H:%MZ")
    return str(key)
