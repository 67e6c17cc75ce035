"""
Completions: a job that is submitted in the transaction that ends another job.

What follows the end of a job is one JSON object, `jobs.callback`: `url` or `endpoint`
is the receiver of a webhook, and `completion` is the job to submit. A completion has
no completion of its own. Its id is derived from the job and its generation.

The input of a completion is the one given at submission plus the field `job`. If the
job's output is stored as a blob, so is the whole input of its completion. It is
written before the transaction, under the id that the completion will have.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import orjson

from backburner.domain.blobs.blob import BlobKey, Reference, reference
from backburner.domain.jobs.job import Claim, Instant, JobState, NewJob, Owner, uuid7
from backburner.domain.webhooks.delivery import Ended, Result, delivery

COMPLETION: Final = "completion"
PARENT: Final = "parent"
"""The field of `jobs.callback` with the parent that waits for its child's end."""
TELL_PARENT: Final = "backburner.tell-parent"
"""The capability that signals a parent; it runs in the parent's queue."""
TELLING_ATTEMPTS: Final = 20
JOB: Final = "job"
"""The field of a completion's input that describes the job that ended."""
TAG: Final = "completion:"
"""The prefix of a completion's tag; the id of the job that ended follows."""


def with_completion(callback: str | None, completion: Mapping[str, Any]) -> str:
    """Add a completion to what follows a job's end."""
    follows = {} if callback is None else orjson.loads(callback)
    return orjson.dumps({**follows, COMPLETION: completion}).decode()


def with_parent(follows: str | None, parent: Mapping[str, str]) -> str:
    """Add a signal to the parent to what follows a child's end."""
    others = {} if follows is None else orjson.loads(follows)
    return orjson.dumps({**others, PARENT: parent}).decode()


def completion_of(follows: str | None) -> Mapping[str, Any] | None:
    """Return the completion that follows a job's end; `None` if there is none."""
    if follows is None:
        return None
    completion: Mapping[str, Any] | None = orjson.loads(follows).get(COMPLETION)
    return completion


def callback_of(follows: str | None) -> str | None:
    """Return the webhook receiver of a job's end, as JSON; `None` if there is none."""
    if follows is None:
        return None
    receiver = {k: v for k, v in orjson.loads(follows).items() if k not in _JOBS}
    return orjson.dumps(receiver).decode() if receiver else None


def followers(ended: Ended, at: Instant) -> list[NewJob]:
    """Return the jobs to submit at an end: delivery, completion, signal to a parent."""
    jobs = []
    callback = callback_of(ended.callback)
    if callback is not None:
        jobs.append(delivery(ended._replace(callback=callback), at))
    completion = completion_of(ended.callback)
    if completion is not None and ended.result is not None:
        jobs.append(_completion(ended, ended.result, completion, at))
    parent = orjson.loads(ended.callback or "{}").get(PARENT)
    if parent is not None:
        jobs.append(_telling(ended, parent, at))
    return jobs


def _telling(ended: Ended, parent: Mapping[str, str], at: Instant) -> NewJob:
    """Return the job that signals the parent of a child that ended."""
    input_ = {
        "parent": parent["id"],
        "child": ended.id,
        "state": ended.state,
        "generation": ended.generation,
    }
    named = f"{PARENT}\0{ended.id}\0{ended.generation}".encode()
    chance = int.from_bytes(hashlib.sha256(named).digest()[:8], "big") >> 2
    return NewJob(
        id=f"job_{uuid7(at << 12, chance)}",
        owner=Owner(ended.tenant, ended.user),
        capability=TELL_PARENT,
        queue=parent["queue"],
        input=orjson.dumps(input_).decode(),
        created_at=at,
        max_attempts=TELLING_ATTEMPTS,
        tags=(f"{PARENT}:{parent['id']}",),
        request_id=ended.request_id,
        traceparent=ended.traceparent,
        tokens=0,
        never_refused=True,
    )


_JOBS: Final = frozenset({COMPLETION, PARENT})
"""The fields of `jobs.callback` that are not about a webhook."""


def large_input(claim: Claim, output: BlobKey, text: str) -> tuple[BlobKey, bytes]:
    """Return the blob for a completion's input if its job succeeds with this output."""
    ended = Ended(
        id=claim.id,
        tenant=claim.tenant,
        user=claim.user,
        generation=claim.generation,
        state=JobState.SUCCEEDED,
        callback=claim.callback,
        request_id=None,
        traceparent=None,
    )
    result = Result(claim.capability, claim.created_at, text)
    key = BlobKey(_id(ended, result), output.name)
    return key, _input(ended, result, completion_of(claim.callback) or {})


def _completion(
    ended: Ended, result: Result, completion: Mapping[str, Any], at: Instant
) -> NewJob:
    return NewJob(
        id=_id(ended, result),
        owner=Owner(ended.tenant, ended.user),
        capability=completion["capability"],
        queue=completion["queue"],
        input=_stored_input(ended, result, completion),
        created_at=at,
        max_attempts=completion["max_attempts"],
        tags=(f"{TAG}{ended.id}", *completion.get("tags", ())),
        request_id=ended.request_id,
        traceparent=ended.traceparent,
        tokens=completion.get("tokens"),
        model=completion.get("model"),
        key=completion.get("key"),
        never_refused=True,
    )


def _id(ended: Ended, result: Result) -> str:
    """Return the completion's id, which is known before the end and unique to it."""
    named = f"{COMPLETION}\0{ended.id}\0{ended.generation}".encode()
    chance = int.from_bytes(hashlib.sha256(named).digest()[:8], "big") >> 2
    return f"job_{uuid7(result.created_at << 12, chance)}"


def _stored_input(ended: Ended, result: Result, completion: Mapping[str, Any]) -> str:
    output = reference(result.output)
    if output is None:
        return _input(ended, result, completion).decode()
    around = len(_input(ended, result._replace(output=" "), completion)) - 1
    key = BlobKey(_id(ended, result), output.key.name)
    return str(Reference(key, around + output.size))


def _input(ended: Ended, result: Result, completion: Mapping[str, Any]) -> bytes:
    job: dict[str, Any] = {
        "id": ended.id,
        "capability": result.capability,
        "state": ended.state,
        "generation": ended.generation,
    }
    if ended.state == JobState.SUCCEEDED:
        job["output"] = orjson.Fragment(result.output or "null")
    else:
        job["error"] = orjson.Fragment(result.error or "null")
    return orjson.dumps({**completion.get("input", {}), JOB: job})
