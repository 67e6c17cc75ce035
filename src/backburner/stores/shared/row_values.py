"""The values of jobs, settlements and moves, in the order of the statements."""

from typing import Any

from backburner.domain.jobs.job import NewJob, first_state, waits
from backburner.ports.store.jobs import Move, Settlement
from backburner.stores.shared.settling import (
    as_json,
    error_json,
    expires_at,
    kept_by_queue,
    tags_text,
)


def job_values(job: NewJob) -> tuple[Any, ...]:
    """Return the columns of a new job, except its number and rank."""
    return (
        job.id,
        job.owner.tenant,
        job.owner.user,
        job.capability,
        job.queue,
        first_state(job),
        job.priority,
        job.max_attempts,
        job.run_at,
        job.start_by,
        job.deadline,
        expires_at(job),
        job.created_at,
        job.run_at if waits(job) else job.created_at,
        job.input,
        tags_text(job),
        job.request_id,
        job.idempotency_key,
        job.body_hash,
        job.flow,
        job.step,
        job.needs,
        job.open,
        job.batch,
        job.callback,
        job.traceparent,
        job.tokens,
        job.model,
        job.share,
        job.holds,
        kept_by_queue(job),
        as_json(job.metadata) if job.metadata else None,
    )


def settle_values(settlement: Settlement) -> tuple[Any, ...]:
    """Return the values of a settlement, without its event and its wait."""
    change = settlement.change
    return (
        settlement.seq,
        settlement.token,
        change.to,
        change.at,
        change.at if change.to.is_final else None,
        change.output,
        error_json(change),
        change.error.code if change.error else None,
        change.fingerprint,
        change.run_at,
        change.attempt,
        change.crashes,
        change.throttled,
    )


def move_values(move: Move) -> tuple[Any, ...]:
    """Return the values of a move, without its event."""
    change = move.change
    return (
        move.seq,
        move.state,
        move.generation,
        change.to,
        change.at,
        change.at if change.to.is_final else None,
        error_json(change),
        change.error.code if change.error else None,
        change.fingerprint,
        change.attempt,
        change.crashes,
        change.throttled,
        change.generation,
        change.run_at,
    )
