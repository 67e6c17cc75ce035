"""Lanes and their permits, on both databases."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, Protocol

import orjson
import sqlalchemy as sa

from backburner.domain.events.event import LANE_THROTTLED
from backburner.domain.jobs.job import Instant
from backburner.domain.lanes.lane import Lane, LaneState, Starts, declared, model_lane
from backburner.domain.lanes.permit import (
    Held,
    Permit,
    PermitRequest,
    Wait,
    come_again,
    give,
    served_within,
    take,
    take_within,
)
from backburner.domain.lanes.rate_limit_headers import RateLimitInfo
from backburner.ports.store.lanes import LaneView, PermitReturn
from backburner.ports.store.transactions import Connection
from backburner.ports.store.workers import WorkerLost
from backburner.stores.shared.access import Access
from backburner.stores.shared.settling import as_json
from backburner.stores.tables import events, permits, workers
from backburner.stores.tables import lanes as table

c = table.c
p = permits.c

_MAKE = sa.text("""
INSERT INTO lanes (name, state) VALUES (:name, '{}') ON CONFLICT (name) DO NOTHING
""")
_SELECT = sa.select(c.name, c.requests, c.tokens, c.at_once, c.spacing, c.state)
_LIMITS = ("name", "requests", "tokens", "at_once", "spacing")
_LEARNT = tuple(f.name for f in fields(LaneState) if f.name not in _LIMITS)
_LIVING = sa.select(workers.c.id)
_COUNT = (
    sa.select(p.lane, sa.func.count()).where(p.worker.in_(_LIVING)).group_by(p.lane)
)
"""Built once, like all statements that every call runs."""
_LOCK = (
    _SELECT.where(c.name.in_(sa.bindparam("names", expanding=True)))
    .order_by(c.name)
    .with_for_update()
)
_THERE = sa.select(c.name).where(c.name.in_(sa.bindparam("names", expanding=True)))
_SWEEP = sa.delete(permits).where(
    p.lane.in_(sa.bindparam("names", expanding=True)), p.worker.not_in(_LIVING)
)
_HELD = sa.select(
    sa.func.count(),
    sa.func.coalesce(
        sa.func.sum(sa.case((p.id == sa.bindparam("probe"), 1), else_=0)), 0
    ),
).where(p.lane == sa.bindparam("lane"))
_ENLISTED = _LIVING.where(workers.c.id.in_(sa.bindparam("ids", expanding=True)))
_FREE = sa.delete(permits).where(p.id == sa.bindparam("permit"))
_STORE = (
    sa.update(table)
    .where(c.name == sa.bindparam("lane"))
    .values(state=sa.bindparam("state"))
)


class Take(NamedTuple):
    """A worker's request for a permit."""

    lane: str
    worker: str
    ask: PermitRequest


class Give(NamedTuple):
    """A permit that is returned."""

    lane: str
    permit: Permit
    hint: RateLimitInfo | None
    ask: PermitRequest
    is_over: bool


Act = Take | Give
Answer = Permit | Wait | WorkerLost | PermitReturn


class Lanes(Access, Protocol):
    """The operations of `LaneStore`, on both databases."""

    async def pace(self, act: Act) -> Any:
        """Run `perform` for this act and those that wait with it; not durable."""
        ...

    async def read_clock(self) -> Instant:
        """Return the store's time."""
        ...

    async def declare_lanes(self, lanes: Sequence[Lane]) -> None:
        await self.transact(lambda tx: _declare(tx.connection, lanes))

    async def take_permit(
        self, lane: str, worker: str, ask: PermitRequest
    ) -> Permit | Wait:
        answer: Permit | Wait = await self.pace(Take(lane, worker, ask))
        return answer

    async def give_permit(
        self,
        lane: str,
        permit: Permit,
        hint: RateLimitInfo | None,
        ask: PermitRequest,
        *,
        is_over: bool = True,
    ) -> PermitReturn:
        given: PermitReturn = await self.pace(Give(lane, permit, hint, ask, is_over))
        return given

    async def lanes(self) -> Sequence[LaneView]:
        now = await self.read_clock()
        return await self.read(lambda connection: _listing(connection, now))


def perform(
    connection: Connection, clock: Callable[[], Instant], acts: Sequence[Act]
) -> list[Answer]:
    """Take and return permits in this order, under the lanes' locks."""
    states = _locked(connection, sorted({act.lane for act in acts}), with_models=True)
    names = [*states]
    connection.execute(_SWEEP, {"names": names})
    # Read the clock after locking, so that it is not before a stored instant.
    now = clock()
    enlisted = _enlisted(connection, acts)
    held = {name: _held(connection, states[name]) for name in names}
    batch = _Batch(connection, now, states, held)
    answers: list[Answer] = []
    for act in acts:
        if isinstance(act, Give):
            answers.append(batch.give(act))
        elif act.worker in enlisted:
            answers.append(batch.take(act))
        else:
            answers.append(WorkerLost())
    if batch.given:
        connection.execute(sa.insert(permits), batch.given)
    for name in names:
        connection.execute(_STORE, {"lane": name, "state": _written(states[name])})
    return answers


class _Batch:
    """Locked lanes, and the changes made to them in order."""

    def __init__(
        self,
        connection: Connection,
        now: Instant,
        states: dict[str, LaneState],
        held: dict[str, Held],
    ) -> None:
        self._connection = connection
        self._now = now
        self._states = states
        self._held = held
        self.given: list[dict[str, Any]] = []
        """The permits to store."""

    def take(self, act: Take) -> Permit | Wait:
        """Grant a permit, or return when to ask again."""
        states, lane, model = self._states, act.lane, model_lane(act.lane)
        held = self._held[lane]
        answer: Permit | Wait
        if model not in states:
            states[lane], answer = take(states[lane], act.ask, held=held, now=self._now)
            self._note(act, lane, answer)
            return answer
        states[lane], states[model], answer = take_within(
            states[lane],
            states[model],
            act.ask,
            held=held,
            all_held=self._held[model],
            now=self._now,
        )
        self._note(act, lane, answer)
        self._note(act, model, answer)
        return answer

    def _note(self, act: Take, lane: str, answer: Permit | Wait) -> None:
        if isinstance(answer, Permit):
            permit = answer if lane == act.lane else _of_model(answer)
            self.given.append(_row(act.worker, lane, permit))
            self._held[lane] = _with(permit, self._held[lane])

    def give(self, act: Give) -> PermitReturn:
        """Return a permit, with the provider's response."""
        states, lane, model = self._states, act.lane, model_lane(act.lane)
        states[lane], result = _given(self._connection, states[lane], act, self._now)
        if act.is_over:
            self._free(lane, act.permit)
        if act.is_over and model in states:
            self._free(model, _of_model(act.permit))
            if act.hint is not None and not act.hint.is_refused:
                whole = served_within(states[model], act.permit, now=self._now)
                states[model] = whole
        return result

    def _free(self, lane: str, permit: Permit) -> None:
        held = _without(self._connection, permit, self._held[lane], self.given)
        self._held[lane] = held


def _of_model(permit: Permit) -> Permit:
    """Return a permit in the form in which the lane of all credentials counts it."""
    return permit._replace(id=f"{permit.id}#", is_probe=False)


def _locked(
    connection: Connection, names: Sequence[str], *, with_models: bool = False
) -> dict[str, LaneState]:
    """
    Lock lanes in the order of their names, and create missing ones.

    With `with_models`, the lanes of their models are locked too if they have limits.
    Lanes are created before any is locked, so a transaction that waits for a lane that
    another one creates holds no lock that the other needs.
    """
    models = (
        {model_lane(name) for name in names} - {None, *names} if with_models else ()
    )
    there = set(connection.execute(_THERE, {"names": names}).scalars())
    for name in names:
        if name not in there:
            connection.execute(_MAKE, {"name": name})
    states = _by_name(connection.execute(_LOCK, {"names": [*names, *models]}))
    return {n: s for n, s in states.items() if n in names or s.is_limited}


def _enlisted(connection: Connection, acts: Sequence[Act]) -> set[str]:
    ids = sorted({act.worker for act in acts if isinstance(act, Take)})
    if not ids:
        return set()
    return {row[0] for row in connection.execute(_ENLISTED, {"ids": ids})}


def _held(connection: Connection, state: LaneState) -> Held:
    asked = {"lane": state.name, "probe": state.probe or ""}
    [(calls, probes)] = connection.execute(_HELD, asked)
    return Held(calls, bool(probes))


def _given(
    connection: Connection, state: LaneState, act: Give, now: Instant
) -> tuple[LaneState, PermitReturn]:
    before = state.parkings
    state = give(state, act.permit, act.hint, now=now)
    if act.hint is None or not act.hint.is_refused:
        return state, PermitReturn()
    if state.parkings > before:
        _tell(connection, state, now)
    state, wait = come_again(state, act.ask, now=now)
    return state, PermitReturn(state.parkings > before, wait)


def _with(permit: Permit, held: Held) -> Held:
    return Held(held.calls + 1, held.has_probe or permit.is_probe)


def _without(
    connection: Connection, permit: Permit, held: Held, given: list[dict[str, Any]]
) -> Held:
    """Release a permit, which may be of this batch, or released already."""
    fresh = [row for row in given if row["id"] == permit.id]
    for row in fresh:
        given.remove(row)
    gone = len(fresh) or connection.execute(_FREE, {"permit": permit.id}).rowcount
    return Held(held.calls - gone, held.has_probe and not (gone and permit.is_probe))


def _row(worker: str, lane: str, permit: Permit) -> dict[str, Any]:
    return {"id": permit.id, "lane": lane, "worker": worker, "at": permit.at}


def _tell(connection: Connection, state: LaneState, now: Instant) -> None:
    row = {
        "queue": state.name,
        "n": state.parkings,
        "type": LANE_THROTTLED,
        "at": now,
        "data": as_json(
            {"parked_until": state.parked_until, "refusals": state.refusals}
        ),
    }
    connection.execute(events.insert(), [row])


def _declare(connection: Connection, lanes: Sequence[Lane]) -> None:
    names = sorted({lane.name for lane in lanes})
    states = _locked(connection, names)
    for lane in sorted(lanes, key=lambda lane: lane.name):
        state = declared(states[lane.name], lane)
        limits = {name: getattr(state, name) for name in _LIMITS[1:]}
        update = sa.update(table).where(c.name == lane.name)
        connection.execute(update.values(limits))


def _listing(connection: sa.Connection, now: Instant) -> list[LaneView]:
    counts = {lane: calls for lane, calls in connection.execute(_COUNT)}  # noqa: C416
    states = _by_name(connection.execute(_SELECT.order_by(c.name)))
    return [LaneView(state, counts.get(name, 0), now) for name, state in states.items()]


def _by_name(rows: Iterable[Any]) -> dict[str, LaneState]:
    return {row[0]: _read(row) for row in rows}


def _read(row: Sequence[Any]) -> LaneState:
    *limits, text = row
    learnt: Mapping[str, Any] = orjson.loads(text)
    starts = tuple(Starts(*start) for start in learnt.get("starts", ()))
    named = dict(zip(_LIMITS, limits, strict=True))
    return replace(LaneState(**named), **{**learnt, "starts": starts})


def _written(state: LaneState) -> str:
    learnt = {name: getattr(state, name) for name in _LEARNT}
    return as_json({**learnt, "starts": [list(start) for start in state.starts]})
