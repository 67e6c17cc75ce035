"""The position up to which dead letters have been exported to a broker."""

from datetime import timedelta
from typing import Any, Protocol

import sqlalchemy as sa

from backburner.domain.jobs.job import Instant, JobState
from backburner.ports.store.dead_letter_exports import UnexportedDeadLetters
from backburner.stores.shared.access import Access
from backburner.stores.shared.listing import SELECT_JOBS
from backburner.stores.shared.rows import as_job
from backburner.stores.tables import events, jobs, marks

m, e = marks.c, events.c

NAME = "burials"
_IS_OURS = m.name == NAME
# A literal, so that the partial index events_failed is used.
_FAILED = sa.text("events.type = 'job.failed'")

_BEGIN = sa.text(f"""
INSERT INTO marks (name, at, until)
SELECT '{NAME}', coalesce(max(seq), 0), 0 FROM events WHERE true
ON CONFLICT (name) DO NOTHING
""")  # noqa: S608 - a constant
# Run every second by every process with a broker, so built once.
NEWS = sa.select(m.at).where(
    _IS_OURS, sa.exists(sa.select(e.seq).where(_FAILED, e.seq > m.at))
)
FAILURES = (
    sa.select(e.seq, e.job, e.n)
    .where(_FAILED, e.seq > sa.bindparam("after"), e.seq <= sa.bindparam("upto"))
    .order_by(e.seq)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)


class DeadLetterExports(Access, Protocol):
    """`DeadLetterExportStore`, on both databases."""

    async def latest(self) -> int:
        """Return the event up to which the log is complete."""
        ...

    async def read_clock(self) -> Instant:
        """Return the store's time."""
        ...

    async def begin_dead_letter_export(self) -> None:
        await self.transact(lambda tx: tx.connection.execute(_BEGIN))

    async def unexported_dead_letters(
        self, exporter: str, *, span: timedelta, limit: int
    ) -> UnexportedDeadLetters | None:
        after = await self.read(lambda c: c.execute(NEWS).scalar())
        if after is None:
            return None
        upto, now = await self.latest(), await self.read_clock()
        until = now + span // timedelta(milliseconds=1)
        seize = (
            sa.update(marks)
            .where(_IS_OURS, m.at == after)
            .where(
                # If the holder's clock was set back, others must not wait for it.
                (m.holder == exporter) | (m.until <= now) | (m.until > until)
            )
            .values(holder=exporter, until=until)
        )
        if not await self._change(seize):
            return None
        return await self.read(lambda c: failures(c, after, upto, limit))

    async def mark_dead_letters_exported(self, exporter: str, *, upto: int) -> bool:
        return await self._change(
            sa.update(marks)
            .where(_IS_OURS, m.holder == exporter, m.at < upto)
            .values(at=upto, holder=None, until=0)
        )

    async def _change(self, statement: Any) -> bool:
        return await self.transact(
            lambda tx: bool(tx.connection.execute(statement).rowcount)
        )


def failures(
    connection: sa.Connection, after: int, upto: int, limit: int
) -> UnexportedDeadLetters | None:
    """Return the jobs that failed between two positions."""
    asked = {"after": after, "upto": upto, "limit": limit}
    failed = connection.execute(FAILURES, asked).all()
    if not failed:
        return None
    query = SELECT_JOBS.where(jobs.c.seq.in_([job for _, job, _ in failed]))
    by_key = {job.seq: job for job in map(as_job, connection.execute(query))}
    # A retried job has more events: only the last event of a dead letter is a failure.
    dead = [
        by_key[seq]
        for _, seq, n in failed
        if seq in by_key
        and (JobState.FAILED, n) == (by_key[seq].state, by_key[seq].events)
    ]
    return UnexportedDeadLetters(dead, failed[-1].seq)
