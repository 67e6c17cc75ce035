"""A transaction under way: what bodies get, and what the store's statements run in."""

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sa

from backburner.domain.errors import IdempotencyConflict
from backburner.domain.job import JobState, NewJob, Submitted
from backburner.ports.faults import Faults
from backburner.stores.settling import KEY_LIFETIME_MS, expires_at, tags_text, waits
from backburner.stores.sqlite.database import driver
from backburner.stores.sqlite.queries import Queries


class savepoint(AbstractContextManager[None]):  # noqa: N801 - reads as the statement
    """Keep all of what the block writes, or nothing of it."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    def __enter__(self) -> None:
        self._raw.execute("SAVEPOINT caller")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._raw.in_transaction:
            if kind is None:
                raise RuntimeError("a transaction body must not commit or roll back")
            return
        if kind is not None:
            self._raw.execute("ROLLBACK TO caller")
        self._raw.execute("RELEASE caller")


class Transaction:
    """A `Tx` over the one writing connection."""

    def __init__(
        self, connection: sa.Connection, queries: Queries, faults: Faults
    ) -> None:
        self.connection = connection
        self.driver = driver(connection)
        self.queries = queries
        self.names: Sequence[str] = ()
        self._faults = faults

    def hit(self, moment: str) -> None:
        """Pass the failpoints of whatever ran in this transaction."""
        for name in self.names:
            self._faults.hit(f"{name}.{moment}")

    def rows(self, statement: str, *parameters: Any) -> list[Any]:
        """Run a statement and return its rows."""
        return self.driver.execute(statement, parameters).fetchall()

    def submit(self, jobs: Sequence[NewJob]) -> Sequence[Submitted]:
        """Store jobs, or find those that their keys stand for."""
        base = self.rows(self.queries.last_seq)[0][0] + 1
        rows = [_row(base + index, job) for index, job in enumerate(jobs)]
        answers = self._insert(jobs, rows)
        self.driver.execute(
            self.queries.insert_submit_events, (base, base + len(jobs) - 1)
        )
        return answers

    def _insert(
        self, jobs: Sequence[NewJob], rows: Sequence[tuple[Any, ...]]
    ) -> Sequence[Submitted]:
        if all(job.idempotency_key is None for job in jobs):
            self.driver.executemany(self.queries.insert_jobs, rows)
            return [
                Submitted(job.id, row[7]) for job, row in zip(jobs, rows, strict=True)
            ]
        return [self._insert_one(job, row) for job, row in zip(jobs, rows, strict=True)]

    def _insert_one(self, job: NewJob, row: tuple[Any, ...]) -> Submitted:
        if job.idempotency_key is not None:
            if self.rows(self.queries.insert_job, *row):
                return Submitted(job.id, row[7])
            known = self._known(job)
            if known is not None:
                return known
        self.driver.execute(self.queries.insert_jobs, row)
        return Submitted(job.id, row[7])

    def _known(self, job: NewJob) -> Submitted | None:
        key = (job.owner.tenant, job.owner.user, job.idempotency_key)
        horizon = job.created_at - KEY_LIFETIME_MS
        self.driver.execute(self.queries.free_idempotency_key, (*key, horizon))
        found = self.rows(self.queries.find_by_key, *key)
        if not found:
            return None
        job_id, state, body_hash = found[0]
        if body_hash != job.body_hash:
            raise IdempotencyConflict(
                "this idempotency key was used with another request body"
            )
        return Submitted(job_id, JobState(state), replayed=True)


def _row(seq: int, job: NewJob) -> tuple[Any, ...]:
    is_waiting = waits(job)
    return (
        seq,
        seq,
        job.id,
        job.owner.tenant,
        job.owner.user,
        job.capability,
        job.queue,
        JobState.SCHEDULED if is_waiting else JobState.QUEUED,
        job.priority,
        job.max_attempts,
        job.run_at,
        job.start_by,
        job.deadline,
        expires_at(job),
        job.created_at,
        job.run_at if is_waiting else job.created_at,
        job.input,
        tags_text(job),
        job.request_id,
        job.idempotency_key,
        job.body_hash,
    )
