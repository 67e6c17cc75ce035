"""
Webhook deliveries: which ends are reported to which endpoint.

A delivery is a job, submitted in the transaction that ends its subject. Its id is
derived from the subject and its generation, so each end is reported once.
"""

import hashlib
from typing import Final, NamedTuple

import orjson

from backburner.domain.jobs.job import Instant, NewJob, Owner, uuid7

CAPABILITY: Final = "webhook.deliver"
QUEUE: Final = "backburner.deliveries"
MAX_ATTEMPTS: Final = 10
PRIORITY: Final = 0


class Result(NamedTuple):
    """What a job's completion receives besides the state, as it is stored."""

    capability: str
    created_at: Instant
    output: str | None
    """JSON, or a reference to a blob."""
    error: str | None = None


class Ended(NamedTuple):
    """A job, flow or batch that ended and whose end is to be reported."""

    id: str
    tenant: str
    user: str
    generation: int
    state: str
    callback: str | None
    """The receiver given at submission, as JSON; for a job, with its completion."""
    request_id: str | None
    traceparent: str | None
    result: Result | None = None
    """Set for a job that has a completion."""


QUESTION: Final = "job.question"
"""The type of the webhook that reports a question to people."""


def question_delivery(ended: Ended, name: str, at: Instant) -> NewJob:
    """Return the job that reports a question, at most once a day for the same one."""
    job = delivery(ended._replace(state="question"), at)
    named = f"{ended.id}\0{ended.generation}\0{name}".encode()
    digest = hashlib.sha256(named).hexdigest()
    job.id = f"job_{uuid7(at << 12, int(digest[:16], 16) >> 2)}"
    job.idempotency_key, job.body_hash = f"question-{digest}", digest
    job.input = orjson.dumps({**orjson.loads(job.input), "name": name}).decode()
    return job


def delivery(ended: Ended, at: Instant) -> NewJob:
    """Return the job that reports an end."""
    kind = ended.id.partition("_")[0]
    input_ = {
        "callback": orjson.Fragment(ended.callback or "null"),
        "subject": ended.id,
        "generation": ended.generation,
        "type": f"{kind}.{ended.state}",
        "at": at,
    }
    named = f"{ended.id}\0{ended.generation}".encode()
    chance = int.from_bytes(hashlib.sha256(named).digest()[:8], "big") >> 2
    return NewJob(
        id=f"job_{uuid7(at << 12, chance)}",
        owner=Owner(ended.tenant, ended.user),
        capability=CAPABILITY,
        queue=QUEUE,
        input=orjson.dumps(input_).decode(),
        created_at=at,
        max_attempts=MAX_ATTEMPTS,
        priority=PRIORITY,
        tags=(f"delivery:{ended.id}",),
        request_id=ended.request_id,
        traceparent=ended.traceparent,
        tokens=0,
    )
