"""The content of a webhook: the end of a job, flow or batch at its time."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, Protocol, TypeVar

import orjson
from pydantic import BaseModel

from backburner.domain.blobs.blob import reference
from backburner.domain.errors import Problem
from backburner.domain.events.event import Event
from backburner.domain.groups.batch import Batch
from backburner.domain.groups.flow import FlowRecord
from backburner.domain.jobs.job import Instant, Job, JobState, Owner, rfc3339
from backburner.domain.webhooks.delivery import QUESTION
from backburner.engine.history import changes
from backburner.ports.store import Store
from backburner.ports.store.events import Topic

LARGEST_OUTPUT: Final = 16 * 1024
"""A larger output, in bytes, is left out; the receiver fetches it."""
_PAGE: Final = 1_000


class DeliveryInput(BaseModel):
    """The input of a delivery, as `domain/webhooks/delivery.py` writes it."""

    callback: dict[str, str]
    subject: str
    generation: int
    type: str
    at: Instant
    name: str | None = None
    """The name of a question."""
    message: str | None = None
    """The id of the repeated delivery, by which its receiver recognises the message."""


class Owned(Protocol):
    """An object with an owner."""

    @property
    def owner(self) -> Owner:
        """The tenant and user that own it."""
        ...


O = TypeVar("O", bound=Owned)  # noqa: E741 - as types are named


class Messages:
    """
    Writes the bodies of webhooks.

    The content comes from the row if the job is still in that final state, otherwise
    from the event that recorded it. The body is the same either way.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def body(self, delivery: DeliveryInput, owner: Owner) -> bytes | None:
        """Return the body; `None` if the job, flow or batch no longer exists."""
        data = await self._data(delivery, owner)
        if data is None:
            return None
        message = {
            "type": delivery.type,
            "timestamp": rfc3339(delivery.at),
            "data": data,
        }
        return orjson.dumps(message)

    async def _data(
        self, delivery: DeliveryInput, owner: Owner
    ) -> dict[str, Any] | None:
        match delivery.subject.partition("_")[0]:
            case "job":
                job = _only(await self._store.find([delivery.subject]), owner)
                return None if job is None else await self._of_job(job, delivery)
            case "flow":
                flow = _only(await self._store.find_flows([delivery.subject]), owner)
                return None if flow is None else _of_flow(flow, delivery)
            case _:
                batch = _only(await self._store.find_batches([delivery.subject]), owner)
                return None if batch is None else await self._of_batch(batch, delivery)

    async def _of_question(self, job: Job, delivery: DeliveryInput) -> dict[str, Any]:
        """Write a question; one that has been answered meanwhile has only its name."""
        name = delivery.name or ""
        asked = await self._store.find_question(job.seq, delivery.generation, name)
        here = f"/v1/jobs/{job.id}"
        data = _common(job, delivery, here)
        data["links"]["answer"] = f"{here}/questions/{name}/answer"
        question = {} if asked is None else orjson.loads(asked.question)
        return data | {
            "state": JobState.WAITING,
            "finished_at": None,
            "capability": job.capability,
            "question": {"name": name, **question},
        }

    async def _of_job(self, job: Job, delivery: DeliveryInput) -> dict[str, Any]:
        if delivery.type == QUESTION:
            return await self._of_question(job, delivery)
        at, error, output = job.finished_at, _error(job.error), job.output
        if job.generation != delivery.generation:
            history = [event async for event in changes(self._store, job.id)]
            at, error, output = delivery.at, None, None
            for end in _ends(history)[delivery.generation : delivery.generation + 1]:
                at, error = end.at, end.data.get("error")
        data = _common(job, delivery, f"/v1/jobs/{job.id}")
        data["links"]["result"] = f"/v1/jobs/{job.id}/result"
        return data | {
            "finished_at": rfc3339(delivery.at if at is None else at),
            "capability": job.capability,
            "queue": job.queue,
            "flow_id": job.flow_id,
            "step": job.step,
            "batch_id": job.batch_id,
            "error": error,
            **_small(output),
        }

    async def _of_batch(self, batch: Batch, delivery: DeliveryInput) -> dict[str, Any]:
        counts = None if batch.counts is None else orjson.loads(batch.counts)
        if batch.generation != delivery.generation:
            history = await self._history(batch)
            for end in _ends(history)[delivery.generation : delivery.generation + 1]:
                counts = end.data
        data = _common(batch, delivery, f"/v1/batches/{batch.id}")
        return data | {"expected": batch.expected, "counts": counts}

    async def _history(self, batch: Batch) -> list[Event]:
        after, topic = 0, Topic(batch=batch.seq)
        history: list[Event] = []
        while True:
            page = await self._store.stream(
                batch.owner, after=after, limit=_PAGE, topic=topic
            )
            history += page.events
            after = page.upto
            if page.is_last:
                return history


def _only(found: Sequence[O], owner: Owner) -> O | None:
    return next((row for row in found if row.owner == owner), None)


def _ends(history: Sequence[Event]) -> list[Event]:
    """Return the final event of each generation, in order."""
    return [event for event in history if event.is_final]


def _common(
    subject: Job | FlowRecord | Batch, delivery: DeliveryInput, here: str
) -> dict[str, Any]:
    return {
        "id": subject.id,
        "state": delivery.type.partition(".")[2],
        "generation": delivery.generation,
        "tags": subject.tags,
        "request_id": subject.request_id,
        "created_at": rfc3339(subject.created_at),
        "finished_at": rfc3339(delivery.at),
        "links": {"self": here, "events": f"{here}/events"},
    }


def _of_flow(flow: FlowRecord, delivery: DeliveryInput) -> dict[str, Any]:
    data = _common(flow, delivery, f"/v1/flows/{flow.id}")
    return data | {"batch_id": flow.batch_id}


def _small(output: str | None) -> dict[str, Any]:
    """Return a small output; a large one is fetched from `links.result`."""
    if output is None or reference(output) is not None:
        return {}
    is_small = len(output) <= LARGEST_OUTPUT >= len(output.encode())
    return {"output": orjson.Fragment(output)} if is_small else {}


def _error(problem: Problem | None) -> Mapping[str, Any] | None:
    """Return the error that an event recorded."""
    if problem is None:
        return None
    return {name: v for name, v in asdict(problem).items() if v is not None}
