"""Queues over HTTP: depths, limits, pause and resume."""

from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.auth.access import PLATFORM_TENANT
from backburner.domain.errors import (
    QueueNotFound,
)
from backburner.domain.jobs.job import WAITING, JobState
from backburner.domain.queues.queue import Keep, QueueState, Totals
from backburner.engine.engine import Engine
from backburner.http import wire
from backburner.http.audit import entry_of
from backburner.http.auth import Caller, Operator, require
from backburner.http.problems import documented
from backburner.http.schemas.jobs import QueueList, QueueView
from backburner.http.shared_answers import shareable
from backburner.http.state import server_state_of

router = APIRouter(tags=["operations"])

Administrator = Annotated[Caller, require("queues:admin")]

MINUTE: Final = timedelta(minutes=1) // timedelta(milliseconds=1)

SETTLED = {
    200: {"description": "The queue."},
    **documented(QueueNotFound, writes=True),
}


@router.get(
    "/v1/queues",
    operation_id="list_queues",
    summary="List the queues",
    response_model=QueueList,
    responses=documented(),
)
@shareable
async def listing(request: Request, _caller: Operator) -> Response:
    """List the queues with their numbers of jobs and their limits."""
    found = await _queues(server_state_of(request).engine)
    return wire.answer({"items": [found[name] for name in sorted(found)]})


def _switch(verb: str, told: str, *, paused: bool) -> None:
    """Declare the route that pauses or resumes a queue."""

    # A queue's name may contain slashes.
    @router.post(
        f"/v1/queues/{{queue:path}}/{verb}",
        operation_id=f"{verb}_queue",
        summary=f"{verb.capitalize()} a queue",
        description=told,
        response_model=QueueView,
        responses=SETTLED,
    )
    async def switch(request: Request, caller: Administrator, queue: str) -> Response:
        return await _set(request, caller, queue, paused=paused)


_switch(
    "pause",
    "Pause a queue: no job starts, running jobs continue, submits are accepted.",
    paused=True,
)
_switch("resume", "Resume a queue.", paused=False)


async def _set(
    request: Request, caller: Caller, name: str, *, paused: bool
) -> Response:
    engine = server_state_of(request).engine
    if name not in await _queues(engine):
        raise QueueNotFound("no queue has this name")
    action = "queue.paused" if paused else "queue.resumed"
    # A queue belongs to no tenant.
    entry = entry_of(request, caller, action, name, tenant=PLATFORM_TENANT)
    await engine.pause(name, entry, paused=paused)
    return wire.answer((await _queues(engine))[name])


async def _queues(engine: Engine) -> dict[str, dict[str, Any]]:
    found = {name: _view(QueueState(name)) for name in engine.registry.served()}
    for state in await engine.store.queues():
        found[state.name] = _view(state)
    for name, live, count, oldest in await engine.store.depths():
        queue = found.setdefault(name, _view(QueueState(name)))
        queue["suspended" if live is JobState.WAITING else live] = count
        if live is JobState.QUEUED:
            queue["oldest_queued_at"] = wire.time(oldest)
    for name, totals in (await engine.store.totals()).items():
        found.setdefault(name, _view(QueueState(name)))["totals"] = totals._asdict()
    await _rate(engine, found)
    return found


async def _rate(engine: Engine, queues: dict[str, dict[str, Any]]) -> None:
    """Add how many jobs arrived and ended in the last minute."""
    recent = await engine.store.throughput(since=engine.now() - MINUTE)
    for name, moved in recent.items():
        queue = queues.setdefault(name, _view(QueueState(name)))
        queue["submitted_per_minute"] = float(moved.submitted)
        queue["ended_per_minute"] = float(moved.ended)


async def counts(engine: Engine, queue: str) -> dict[str, Any]:
    """Return how many jobs of a queue are waiting, running and ended."""
    found = (await _queues(engine)).get(queue)
    if found is None:
        raise QueueNotFound("no queue has this name")
    waiting = sum(found[state] for state in WAITING)
    active, totals = found[JobState.RUNNING], found["totals"]
    return {
        "queue": {
            "waiting": waiting,
            "active": active,
            "completed": totals["completed"],
            "failed": totals["failed"],
            "total": waiting + active,
        },
        "timestamp": wire.time(engine.now()),
    }


def _keep(keep: Keep | None) -> dict[str, Any] | None:
    if keep is None:
        return None
    ages = (keep.succeeded, keep.failed)
    succeeded, failed = (age and age.total_seconds() for age in ages)
    return {
        "succeeded_seconds": succeeded,
        "failed_seconds": failed,
        "succeeded_count": keep.succeeded_count,
        "failed_count": keep.failed_count,
    }


def _view(state: QueueState) -> dict[str, Any]:
    rate = None
    if state.rate is not None:
        rate = {
            "limit": state.rate.limit,
            "per_seconds": state.rate.per.total_seconds(),
        }
    return {
        "name": state.name,
        "blocked": 0,
        "scheduled": 0,
        "queued": 0,
        "running": 0,
        "suspended": 0,
        "oldest_queued_at": None,
        "paused": state.paused,
        "concurrency": state.concurrency,
        "per_worker": state.per_worker,
        "rate": rate,
        "limited_until": wire.time(state.limited_until),
        "weights": dict(state.weights),
        "waiting": state.waiting,
        "keep": _keep(state.keep),
        "totals": Totals()._asdict(),
        "submitted_per_minute": 0.0,
        "ended_per_minute": 0.0,
    }
