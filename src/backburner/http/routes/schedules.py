"""Schedules over HTTP: list, save, delete, pause, resume and run now."""

from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.auth.access import ACT_ACROSS, PLATFORM_TENANT
from backburner.domain.errors import (
    BudgetExhausted,
    ConfigurationError,
    IllegalTransition,
    InvalidInput,
    PromptRefused,
    ScheduleNotFound,
    StoreUnavailable,
    UnknownCapability,
)
from backburner.domain.jobs.job import first_state
from backburner.domain.queues.schedule import ScheduleState
from backburner.engine.engine import Engine
from backburner.engine.maintenance.schedule import Schedule, following, ticks_of
from backburner.engine.maintenance.scheduler import Scheduler
from backburner.http import headers, wire
from backburner.http.audit import entry_of
from backburner.http.auth import Caller, Operator, require
from backburner.http.problems import (
    Forbidden,
    documented,
)
from backburner.http.routes.jobs import json_body
from backburner.http.schemas.jobs import (
    JobView,
    ScheduleList,
    ScheduleRequest,
    ScheduleView,
)
from backburner.http.state import server_state_of
from backburner.ports.store.keys import AuditEntry

router = APIRouter(tags=["operations"])

Administrator = Annotated[Caller, require("queues:admin")]

SET = "schedule.set"
SHOWN_TICKS = 3
DECLARED = "the code of an application declares this schedule: change it there"


@router.get(
    "/v1/schedules",
    operation_id="list_schedules",
    summary="List the schedules",
    response_model=ScheduleList,
    responses=documented(),
)
async def listing(request: Request, caller: Operator) -> Response:
    """List the schedules by name, with the times when each fires next."""
    _, found = await server_state_of(request).engine.store.schedules()
    return wire.answer({"items": [_view(schedule, caller) for schedule in found]})


# A schedule's name may contain slashes.
@router.put(
    "/v1/schedules/{schedule:path}",
    operation_id="set_schedule",
    summary="Create or change a schedule",
    response_model=ScheduleView,
    response_description="The schedule.",
    responses=documented(
        PromptRefused, UnknownCapability, IllegalTransition, body=True, writes=True
    ),
    openapi_extra={"requestBody": json_body("ScheduleRequest")},
)
async def put(request: Request, caller: Administrator, schedule: str) -> Response:
    """
    Save a schedule, replacing one with the same name.

    Its jobs belong to the caller's user, so it requires `jobs:write` as well. It fires
    within seconds of its time, in any process that has the capability.
    """
    server_state = server_state_of(request)
    asked = await server_state.read(request, ScheduleRequest)
    if "jobs:write" not in caller.scopes:
        raise Forbidden("this requires the scope jobs:write")
    try:
        wanted = Schedule(
            schedule,
            asked.cron,
            asked.capability,
            orjson.dumps(asked.input),
            asked.timezone,
            asked.missed,
            caller.owner,
        )
    except ConfigurationError as error:
        raise InvalidInput(str(error)) from None
    replaced = await _known(server_state.engine, schedule)
    if replaced is not None:
        _check_reach(caller, replaced)
    entries = _entries(request, caller, SET, schedule, replaced)
    if not await _scheduler(server_state.engine).save(wanted, entries):
        raise IllegalTransition(DECLARED)
    return wire.answer(_view(await _find(server_state.engine, schedule), caller))


@router.delete(
    "/v1/schedules/{schedule:path}",
    operation_id="delete_schedule",
    summary="Delete a schedule",
    status_code=204,
    responses=documented(ScheduleNotFound, IllegalTransition, writes=True),
)
async def delete(request: Request, caller: Administrator, schedule: str) -> Response:
    """Delete a saved schedule. The jobs that it submitted stay."""
    engine = server_state_of(request).engine
    found = await _find(engine, schedule)
    if found.owner is None:
        raise IllegalTransition(DECLARED)
    _check_reach(caller, found)
    await engine.store.record(
        _entries(request, caller, "schedule.deleted", schedule, found)
    )
    await engine.store.delete_schedule(schedule)
    return Response(status_code=204)


def _switch(verb: str, told: str, *, paused: bool) -> None:
    """Declare the route that pauses or resumes a schedule."""

    @router.post(
        f"/v1/schedules/{{schedule:path}}/{verb}",
        operation_id=f"{verb}_schedule",
        summary=f"{verb.capitalize()} a schedule",
        description=told,
        response_model=ScheduleView,
        response_description="The schedule.",
        responses=documented(ScheduleNotFound, writes=True),
    )
    async def switch(
        request: Request, caller: Administrator, schedule: str
    ) -> Response:
        engine = server_state_of(request).engine
        found = await _find(engine, schedule)
        action = "schedule.paused" if paused else "schedule.resumed"
        await engine.store.record(_entries(request, caller, action, schedule, found))
        now = await engine.store.read_clock()
        next_at = following(found.cron, found.timezone)(now)
        await engine.store.pause_schedule(schedule, paused=paused, next_at=next_at)
        return wire.answer(_view(await _find(engine, schedule), caller))


_switch(
    "pause",
    "Pause a schedule: it submits nothing, also after a restart.",
    paused=True,
)
_switch(
    "resume",
    "Resume a schedule: it fires at its next tick. Ticks during the pause are skipped.",
    paused=False,
)


@router.post(
    "/v1/schedules/{schedule:path}/run",
    operation_id="run_schedule",
    summary="Run a schedule now",
    status_code=202,
    response_model=JobView,
    responses={
        202: {"description": "The job.", "headers": headers.LOCATION},
        **documented(ScheduleNotFound, UnknownCapability, BudgetExhausted, writes=True),
    },
)
async def run(request: Request, caller: Administrator, schedule: str) -> Response:
    """
    Submit the job of a schedule now, even if the schedule is paused.

    The next tick does not change.
    """
    engine = server_state_of(request).engine
    found = await _find(engine, schedule)
    _check_reach(caller, found)
    new = await _scheduler(engine).prepare(schedule)
    entries = _entries(request, caller, "schedule.run", schedule, found)
    await engine.store_jobs([new], entries)
    told = {"Location": wire.location(new.id), "Retry-After": "1"}
    return wire.answer(wire.receipt(new, first_state(new)), 202, told)


async def _find(engine: Engine, name: str) -> ScheduleState:
    found = await _known(engine, name)
    if found is None:
        raise ScheduleNotFound("no schedule has this name")
    return found


async def _known(engine: Engine, name: str) -> ScheduleState | None:
    _, found = await engine.store.schedules()
    return next((schedule for schedule in found if schedule.name == name), None)


def _reaches(caller: Caller, schedule: ScheduleState) -> bool:
    """Say whether a caller acts in the tenant of a schedule, if it has one."""
    owner = schedule.owner
    is_own = owner is None or owner.tenant == caller.owner.tenant
    return is_own or ACT_ACROSS in caller.scopes


def _check_reach(caller: Caller, schedule: ScheduleState) -> None:
    if not _reaches(caller, schedule):
        raise Forbidden(
            "running, changing or deleting a schedule of another tenant requires "
            f"the scope {ACT_ACROSS}"
        )


def _scheduler(engine: Engine) -> Scheduler:
    if engine.scheduler is None:
        raise StoreUnavailable("this server has no scheduler")
    return engine.scheduler


def _entries(
    request: Request,
    caller: Caller,
    action: str,
    name: str,
    schedule: ScheduleState | None,
) -> Sequence[AuditEntry]:
    """Return an entry for the platform and for the tenant whose jobs are affected."""
    tenants = {PLATFORM_TENANT}
    if schedule is not None and schedule.owner is not None:
        tenants.add(schedule.owner.tenant)
    if action == SET:
        tenants.add(caller.owner.tenant)
    return [
        entry_of(request, caller, action, name, tenant=tenant)
        for tenant in sorted(tenants)
    ]


def _view(schedule: ScheduleState, caller: Caller) -> dict[str, Any]:
    owner, text = schedule.owner, schedule.input
    ticks = [] if schedule.paused else ticks_of(schedule, SHOWN_TICKS)
    is_shown = "queues:admin" in caller.scopes and _reaches(caller, schedule)
    return {
        "name": schedule.name,
        "capability": schedule.capability,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "missed": schedule.missed,
        "next_at": wire.time(schedule.next_at),
        "next_ticks": [wire.time(tick) for tick in ticks],
        "last_at": wire.time(schedule.last_at),
        "paused": schedule.paused,
        "declared": owner is None,
        "tenant": None if owner is None else owner.tenant,
        "user": None if owner is None else owner.user,
        "input": orjson.loads(text) if is_shown and text is not None else None,
    }
