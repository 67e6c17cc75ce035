"""
Waits and signals, on both databases.

A transaction that opens or decides a wait first locks the row of its job. So a signal
and a time-out, or a signal and the settlement to `waiting`, are serialised.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import JobState, Owner, Visibility, WaitReason
from backburner.domain.jobs.wait import (
    MAX_SIGNALS,
    NewWait,
    Question,
    Signal,
    SignalAnswer,
    Signalled,
    StoredWait,
    WaitOutcome,
    WaitRecord,
    answer_to,
    visible_wait,
)
from backburner.ports.store.jobs import Move
from backburner.ports.store.transactions import Connection
from backburner.stores.shared.access import Access
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.shared.paging import seen_by
from backburner.stores.tables import jobs, waits

T = TypeVar("T")
j, w = jobs.c, waits.c


class Waits(Access, Protocol):
    """The operations of `WaitStore`, on both databases."""

    async def internal_transaction(self, body: Callable[[Any], T]) -> T:
        """Run a body in its own durable transaction."""
        ...

    async def open_wait(
        self, job: int, token: str, generation: int, wait: NewWait
    ) -> StoredWait | None:
        return await self.internal_transaction(
            lambda tx: _open(tx, job, token, generation, wait)
        )

    async def find_wait(
        self, job: int, generation: int, name: str
    ) -> StoredWait | None:
        return await self.read(lambda c: _find(c, job, generation, name)[1])

    async def waits_of(self, job: int, *, most: int) -> Sequence[WaitRecord]:
        return await self.read(lambda c: _records(c, job, most))

    async def signal(self, job: int, signal: Signal) -> Signalled:
        return await self.internal_transaction(lambda tx: _signal(tx, job, signal))

    async def find_question(
        self, job: int, generation: int, name: str
    ) -> Question | None:
        mine = w.job == job, w.generation == generation, w.name == name
        questions = await self.read(lambda c: _questions(c, mine, None, 1))
        return questions[0] if questions else None

    async def questions(
        self, owner: Visibility, *, before: int | None, limit: int
    ) -> Sequence[Question]:
        mine = seen_by(owner, j)
        return await self.read(lambda c: _questions(c, mine, before, limit))


def has_signal(connection: Connection, job: int, names: Sequence[str]) -> bool:
    """Return whether one of these waits of a job has a signal."""
    decided = sa.select(w.seq).where(
        w.job == job, w.name.in_(names), w.outcome == WaitOutcome.SIGNALLED
    )
    return connection.execute(decided.limit(1)).first() is not None


def _locked(tx: InternalTx, *where: Any) -> Any:
    query = sa.select(j.seq, j.state, j.generation).where(*where).with_for_update()
    return tx.connection.execute(query).first()


def _find(
    connection: sa.Connection, job: int, generation: int, name: str
) -> tuple[int | None, StoredWait | None]:
    """Return the key of this generation's wait, and the wait that applies."""
    query = sa.select(
        *(w.generation, w.seq, w.name, w.kind, w.until, w.outcome, w.value)
    ).where(w.job == job, w.name == name)
    rows = connection.execute(query).all()
    found = [
        (of, StoredWait(name, WaitReason(kind), until, _outcome(outcome), value))
        for of, _, name, kind, until, outcome, value in rows
    ]
    mine = next((row.seq for row in rows if row.generation == generation), None)
    return mine, visible_wait(found, generation)


def _records(connection: sa.Connection, job: int, most: int) -> list[WaitRecord]:
    size = sa.func.coalesce(sa.func.length(w.value), 0)
    query = sa.select(
        *(w.name, w.kind, w.generation, w.asked_at, w.until, w.outcome),
        *(w.decided_at, size, sa.case((size <= most, w.value))),
    ).where(w.job == job)
    rows = connection.execute(query.order_by(w.seq)).all()
    records = [WaitRecord(*row) for row in rows]
    return [
        record._replace(kind=WaitReason(record.kind), outcome=_outcome(record.outcome))
        for record in records
    ]


def _outcome(text: str | None) -> WaitOutcome | None:
    return None if text is None else WaitOutcome(text)


def _open(
    tx: InternalTx, job: int, token: str, generation: int, wait: NewWait
) -> StoredWait | None:
    if _locked(tx, j.seq == job, j.token == token) is None:
        return None
    tx.hit("wait.opening")
    if wait.kind is WaitReason.QUESTION:
        _forget_early(tx, job, wait.name)
    seq, stored = _find(tx.connection, job, generation, wait.name)
    now = tx.now()
    if stored is None:
        until = None if wait.timeout is None else now + wait.timeout
        row = {
            "job": job,
            "generation": generation,
            "name": wait.name,
            "kind": wait.kind,
            "until": until,
            "asked_at": now,
            "question": wait.question,
        }
        tx.connection.execute(waits.insert().values(**row))
        return StoredWait(wait.name, wait.kind, until, None, None)
    if stored.outcome is None and stored.until is not None and stored.until <= now:
        _decide(tx, seq, now, WaitOutcome.TIMED_OUT, None)
        return stored._replace(outcome=WaitOutcome.TIMED_OUT)
    return stored


def _forget_early(tx: InternalTx, job: int, name: str) -> None:
    """Delete signals that came before a question: only an answer decides it."""
    early = w.kind == WaitReason.SIGNAL, w.asked_at.is_(None)
    tx.connection.execute(waits.delete().where(w.job == job, w.name == name, *early))


def _decide(
    tx: InternalTx, seq: int | None, now: int, outcome: WaitOutcome, value: str | None
) -> None:
    """Decide an open wait; a decided one does not change."""
    deciding = waits.update().where(w.seq == seq, w.outcome.is_(None))
    tx.connection.execute(deciding.values(outcome=outcome, value=value, decided_at=now))


def _signal(tx: InternalTx, job: int, signal: Signal) -> Signalled:
    row = _locked(tx, j.seq == job)
    if row is None or JobState(row.state).is_final:
        return Signalled(SignalAnswer.FINISHED)
    seq, stored = _find(tx.connection, job, row.generation, signal.name)
    refused = _refusal(stored, signal)
    if refused is not None:
        return Signalled(refused)
    now = tx.now()
    if stored is not None:
        _decide(tx, seq, now, WaitOutcome.SIGNALLED, signal.value)
    elif _count(tx, job) >= MAX_SIGNALS:
        return Signalled(SignalAnswer.TOO_MANY)
    else:
        early = {
            "job": job,
            "generation": row.generation,
            "name": signal.name,
            "kind": WaitReason.SIGNAL,
            "outcome": WaitOutcome.SIGNALLED,
            "value": signal.value,
            "decided_at": now,
        }
        tx.connection.execute(waits.insert().values(**early))
    tx.hit("signal.stored")
    if row.state != JobState.WAITING:
        return Signalled(SignalAnswer.STORED)
    change = transitions.signal(signal.name, now=now)
    tx.move([Move(job, JobState.WAITING, row.generation, change)])
    tx.hit("signal.woken")
    return Signalled(SignalAnswer.STORED, is_woken=True)


def _refusal(stored: StoredWait | None, signal: Signal) -> SignalAnswer | None:
    """Return why a signal is not stored for the wait that applies, or `None`."""
    is_question = stored is not None and stored.kind is WaitReason.QUESTION
    if is_question and not signal.is_answer:
        return SignalAnswer.QUESTION
    if stored is not None and stored.outcome is not None:
        return answer_to(stored, signal.value)
    return SignalAnswer.UNASKED if signal.is_answer and not is_question else None


def _count(tx: InternalTx, job: int) -> int:
    query = sa.select(sa.func.count()).select_from(waits).where(w.job == job)
    return int(tx.connection.execute(query).scalar_one())


def _questions(
    connection: sa.Connection,
    mine: Sequence[sa.ColumnElement[bool]],
    before: int | None,
    limit: int,
) -> list[Question]:
    query = (
        sa.select(
            *(w.seq, j.id, w.name, j.tenant, j.user, j.capability),
            *(w.asked_at, w.until, w.question),
        )
        .join(jobs, (j.seq == w.job) & (j.generation == w.generation))
        # Literals, so that the partial index waits_open_questions is used.
        .where(sa.text("waits.kind = 'question' AND waits.outcome IS NULL"))
        .where(j.finished_at.is_(None), *mine)
        .order_by(w.seq.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(w.seq < before)
    return [
        Question(seq, job, name, Owner(tenant, user), *rest)
        for seq, job, name, tenant, user, *rest in connection.execute(query)
    ]
