"""Workers over HTTP: list, drain and resume."""

from typing import Annotated, Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.auth.access import PLATFORM_TENANT
from backburner.domain.errors import WorkerNotFound
from backburner.http import wire
from backburner.http.audit import entry_of
from backburner.http.auth import Caller, Operator, require
from backburner.http.problems import documented
from backburner.http.schemas.jobs import WorkerList, WorkerView
from backburner.http.shared_answers import shareable
from backburner.http.state import server_state_of
from backburner.ports.store.workers import WorkerInfo

router = APIRouter(tags=["operations"])

Administrator = Annotated[Caller, require("queues:admin")]


@router.get(
    "/v1/workers",
    operation_id="list_workers",
    summary="List the workers",
    response_model=WorkerList,
    responses=documented(),
)
@shareable
async def listing(request: Request, _caller: Operator) -> Response:
    """List the live workers, oldest first."""
    found = await server_state_of(request).engine.store.workers()
    return wire.answer({"items": [_view(worker) for worker in found]})


def _switch(verb: str, told: str, *, draining: bool) -> None:
    """Declare the route that drains or resumes a worker."""

    @router.post(
        f"/v1/workers/{{worker_id}}/{verb}",
        operation_id=f"{verb}_worker",
        summary=f"{verb.capitalize()} a worker",
        description=told,
        response_model=WorkerView,
        response_description="The worker.",
        responses=documented(WorkerNotFound, writes=True),
    )
    async def switch(
        request: Request, caller: Administrator, worker_id: str
    ) -> Response:
        return await _set(request, caller, worker_id, draining=draining)


_switch(
    "drain",
    "Let a worker finish its jobs and claim no more. Its process keeps running, and "
    "it stays drained until it is resumed. A restarted worker is not drained.",
    draining=True,
)
_switch("resume", "Let a drained worker claim jobs again.", draining=False)


async def _set(
    request: Request, caller: Caller, worker_id: str, *, draining: bool
) -> Response:
    engine = server_state_of(request).engine
    action = "worker.drained" if draining else "worker.resumed"
    # A worker belongs to no tenant.
    entry = entry_of(request, caller, action, worker_id, tenant=PLATFORM_TENANT)
    await engine.drain(worker_id, entry, draining=draining)
    for worker in await engine.store.workers():
        if worker.id == worker_id:
            return wire.answer(_view(worker))
    raise WorkerNotFound("no live worker has this id")


def _view(worker: WorkerInfo) -> dict[str, Any]:
    vitals = worker.vitals
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "slots": worker.slots,
        "queues": worker.queues,
        "started_at": wire.time(worker.started_at),
        "draining": worker.draining,
        "running": vitals and vitals.running,
        "event_loop_lag_seconds": vitals and vitals.lag_ms / 1000,
        "memory_bytes": vitals and vitals.memory,
    }
