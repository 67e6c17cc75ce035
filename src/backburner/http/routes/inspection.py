"""Details for people who look at one job: its events, input and why it waits."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.errors import BlobMissing, JobNotFound
from backburner.domain.groups.flow import FROM_NEEDS
from backburner.domain.jobs.job import Instant, Job, JobState, WaitReason
from backburner.engine.engine import Engine
from backburner.http import contents, wire
from backburner.http.auth import Reader
from backburner.http.problems import documented
from backburner.http.schemas.jobs import MAX_CURSOR, HistoryPage
from backburner.http.state import server_state_of
from backburner.ports.store.maintenance import JobFilter

router = APIRouter(tags=["jobs"])

MOST_EVENTS = 500

Reason = Literal[
    "dependency",
    "time",
    "signal",
    "question",
    "job",
    "paused",
    "rate",
    "concurrency",
    "no_worker",
    "busy",
]


class HistoryQuery(BaseModel):
    """The events of a job to list."""

    model_config = ConfigDict(extra="forbid")

    after: int = Field(0, ge=0, le=MAX_CURSOR, description="Events after this `n`.")
    changes: bool = Field(
        False, description="Only changes of state, without progress and text."
    )
    limit: int = Field(200, ge=1, le=MOST_EVENTS)


class WaitingView(BaseModel):
    """Why a job does not run."""

    reason: Reason | None = Field(description="Null: the job does not wait.")
    detail: str | None = Field(description="The reason as a sentence.")
    until: str | None = Field(None, description="When it may continue, if known.")


@router.get(
    "/v1/jobs/{job_id}/history",
    operation_id="list_job_events",
    summary="List the events of a job",
    response_model=HistoryPage,
    responses=documented(JobNotFound),
)
async def history(
    request: Request,
    caller: Reader,
    job_id: str,
    query: Annotated[HistoryQuery, Query()],
) -> Response:
    """List a job's events, oldest first, in pages: pass the last `n` as `after`."""
    engine = server_state_of(request).engine
    job = await engine.find(job_id, caller.visible)
    read = engine.store.changes if query.changes else engine.store.history
    events = await read(job_id, after=query.after, limit=query.limit + 1)
    items = [wire.event(event) for event in events[: query.limit]]
    more = len(events) > query.limit
    return wire.answer({"items": items, "total": job.events, "more": more})


@router.get(
    "/v1/jobs/{job_id}/input",
    operation_id="get_input",
    summary="Get a job's input",
    response_model=None,
    responses={
        200: {
            "description": "The input, as it was submitted.",
            "content": {wire.MEDIA_TYPE: {"schema": {}}},
        },
        **documented(JobNotFound, BlobMissing),
    },
)
async def given(request: Request, caller: Reader, job_id: str) -> Response:
    """Return the input only; `null` if it comes from earlier steps."""
    engine = server_state_of(request).engine
    job = await engine.find(job_id, caller.visible)
    stored = "null" if job.input == FROM_NEEDS else job.input
    return await contents.answer_text(engine.payloads, stored, {})


@router.get(
    "/v1/jobs/{job_id}/waiting",
    operation_id="explain_wait",
    summary="Get the reason why a job waits",
    response_model=WaitingView,
    responses=documented(JobNotFound),
)
async def waiting(request: Request, caller: Reader, job_id: str) -> Response:
    """Explain why a job does not run now: earlier steps, time, its queue or workers."""
    engine = server_state_of(request).engine
    job = await engine.find(job_id, caller.visible)
    return wire.answer(await _explained(engine, job))


_SUSPENDED: Final[Mapping[WaitReason, tuple[Reason, str]]] = {
    WaitReason.SLEEP: ("time", "Its handler is sleeping."),
    WaitReason.LANE: ("time", "It waits until its model's lane allows a call."),
    WaitReason.SIGNAL: ("signal", "It waits for a signal."),
    WaitReason.QUESTION: ("question", "It waits for a person to answer."),
    WaitReason.JOB: ("job", "It waits for another job."),
}


async def _explained(engine: Engine, job: Job) -> dict[str, Any]:
    match job.state:
        case JobState.BLOCKED:
            return _view("dependency", "It waits for earlier steps of its flow.")
        case JobState.SCHEDULED:
            why = "" if job.error is None else f" {job.error.message}"
            return _view("time", f"It waits for its start time.{why}", job.run_at)
        case JobState.WAITING if job.wait is not None:
            return _view(*_SUSPENDED[job.wait.reason], job.wait.until)
        case JobState.QUEUED:
            return await _queued(engine, job)
        case _:
            return {"reason": None, "detail": None, "until": None}


async def _queued(engine: Engine, job: Job) -> dict[str, Any]:
    states = [state for state in await engine.store.queues() if state.name == job.queue]
    for state in states:
        if state.paused:
            return _view("paused", f"The queue {job.queue!r} is paused.")
        if state.limited_until is not None and state.limited_until > engine.now():
            detail = f"The rate limit of the queue {job.queue!r} is reached."
            return _view("rate", detail, state.limited_until)
        if state.concurrency is not None:
            running = JobFilter(state=JobState.RUNNING, queue=job.queue)
            count = await engine.store.count(running, most=state.concurrency)
            if count >= state.concurrency:
                detail = f"The queue {job.queue!r} runs its maximum of {count} jobs."
                return _view("concurrency", detail)
    workers = await engine.store.workers()
    serving = [worker for worker in workers if job.queue in worker.queues]
    if all(worker.draining for worker in serving):
        detail = f"No worker serves the queue {job.queue!r}."
        if serving:
            detail = f"All workers of the queue {job.queue!r} are drained."
        return _view("no_worker", detail)
    return _view("busy", "All slots of its workers are in use.")


def _view(reason: Reason, detail: str, until: Instant | None = None) -> dict[str, Any]:
    return {"reason": reason, "detail": detail, "until": wire.time(until)}
