"""Health checks and metrics."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.errors import StoreUnavailable
from backburner.domain.jobs.job import JobState
from backburner.engine.engine import Engine
from backburner.engine.observability import telemetry
from backburner.http import wire
from backburner.http.auth import PUBLIC, require
from backburner.http.problems import documented
from backburner.http.routes.queues import counts
from backburner.http.schemas.jobs import Health
from backburner.http.state import server_state_of

router = APIRouter(tags=["health"])

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get(
    "/livez",
    operation_id="livez",
    summary="Is the process alive?",
    response_model=Health,
    responses=documented(public=True),
    dependencies=[require(PUBLIC)],
)
async def livez() -> Response:
    """Respond as long as the event loop runs."""
    return wire.answer({"status": "ok"})


@router.get(
    "/readyz",
    operation_id="readyz",
    summary="Can it take jobs?",
    response_model=Health,
    responses=documented(StoreUnavailable, public=True),
    dependencies=[require(PUBLIC)],
)
async def readyz(request: Request) -> Response:
    """
    Respond with 200 if the store can be written and the server is not stopping.

    No key is needed, so the store is written to at most once a second. The status is
    `degraded` while the message broker cannot be reached: jobs are accepted and run, a
    little later. It is also `degraded` while applications, listed in `unavailable`, are
    not served because their migration failed.
    """
    server_state = server_state_of(request)
    if server_state.streams.stopping.is_set():
        raise StoreUnavailable("the server is shutting down")
    await server_state.readiness.check(server_state.engine.store.ping)
    if server_state.unavailable:
        return wire.answer(
            {"status": "degraded", "unavailable": server_state.unavailable}
        )
    return wire.answer(
        {"status": "degraded" if server_state.engine.is_degraded else "ok"}
    )


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={
        200: {
            "description": "In the text format; as JSON, the counts of one queue.",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                "application/json": {"schema": {"type": "object"}},
            },
        },
        **documented(),
    },
    dependencies=[require("metrics:read")],
)
async def metrics(request: Request) -> Response:
    """
    Count the jobs of the queues, and return all metrics.

    With `Accept: application/json`, returns the counts of one queue: that of `?queue=`
    or, by default, the one that an application names.
    """
    server_state = server_state_of(request)
    queue = (
        request.query_params.get("queue") or server_state.engine.registry.counted_queue
    )
    if queue and "application/json" in request.headers.get("accept", "").lower():
        return wire.answer(await counts(server_state.engine, queue))
    await _measure(server_state.engine)
    telemetry.build_info.labels(server_state.version).set(1)
    return Response(telemetry.metrics(), media_type=METRICS_TYPE)


async def _measure(engine: Engine) -> None:
    depths = await engine.store.depths()
    telemetry.dead_jobs.set(await engine.store.dead_letters())
    telemetry.budget_amount.clear()
    for scope, unit, balance in await engine.store.ledger_totals():
        for kind, value in balance._asdict().items():
            telemetry.budget_amount.labels(scope, unit, kind).set(value)
    telemetry.queue_ended.clear()
    for queue, totals in (await engine.store.totals()).items():
        for end, count in totals._asdict().items():
            telemetry.queue_ended.labels(queue, end).set(count)
    telemetry.queue_depth.clear()
    telemetry.queue_oldest.clear()
    for queue, state, count, oldest in depths:
        telemetry.queue_depth.labels(queue, state).set(count)
        if state is JobState.QUEUED and oldest is not None:
            age = max(0, engine.now() - oldest) / 1000
            telemetry.queue_oldest.labels(queue).set(age)
