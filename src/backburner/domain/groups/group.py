"""What flows and batches have in common."""

from collections.abc import Sequence
from dataclasses import dataclass

from backburner.domain.jobs.job import Instant, Owner


@dataclass(slots=True, kw_only=True)
class NewGroup:
    """A validated flow or batch, ready to be stored."""

    id: str
    owner: Owner
    created_at: Instant
    callback: str | None = None
    tags: Sequence[str] = ()
    request_id: str | None = None
    traceparent: str | None = None
    idempotency_key: str | None = None
    body_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A stored flow or batch."""

    seq: int
    id: str
    owner: Owner
    generation: int
    events: int
    created_at: Instant
    finished_at: Instant | None = None
    callback: str | None = None
    tags: tuple[str, ...] = ()
    request_id: str | None = None
    traceparent: str | None = None
    body_hash: str | None = None
