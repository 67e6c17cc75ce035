"""Lanes and their permits, in SQLAlchemy Core: the same on every database."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import orjson
import sqlalchemy as sa

from backburner.domain.event import LANE_THROTTLED
from backburner.domain.hint import Hint
from backburner.domain.job import Instant
from backburner.domain.lane import Lane, LaneState, Starts, declared
from backburner.domain.permit import (
    Ask,
    Held,
    Permit,
    Wait,
    come_again,
    give,
    take,
)
from backburner.ports.lanes import Given, LaneView
from backburner.ports.store import Connection, Tx, WorkerLost
from backburner.stores.settling import as_json
from backburner.stores.tables import events, permits, workers
from backburner.stores.tables import lanes as table

T = TypeVar("T")
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
"""Built once, as is every statement that each call needs."""
_LOCK = (
    _SELECT.where(c.name.in_(sa.bindparam("names", expanding=True)))
    .order_by(c.name)
    .with_for_update()
)
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
    """A worker's wish to call by a lane."""

    lane: str
    worker: str
    ask: Ask


class Give(NamedTuple):
    """A permit that comes back."""

    lane: str
    permit: Permit
    hint: Hint | None
    ask: Ask
    is_over: bool


Act = Take | Give
Answer = Permit | Wait | WorkerLost | Given


class Lanes(Protocol):
    """The verbs of `LaneStore`, for any store that can read, transact and pace."""

    async def read(self, read: Callable[[sa.Connection], T]) -> T:
        """Read; each statement sees what was committed before it."""
        ...

    async def transact(self, body: Callable[[Tx], T]) -> T:
        """Run a body in a transaction of its own, durable."""
        ...

    async def pace(self, act: Act) -> Any:
        """Run `perform` for this act and those that wait beside it, not durable."""
        ...

    async def lane_time(self) -> Instant:
        """Return the store's time."""
        ...

    async def declare_lanes(self, lanes: Sequence[Lane]) -> None:
        await self.transact(lambda tx: _declare(tx.connection, lanes))

    async def take_permit(self, lane: str, worker: str, ask: Ask) -> Permit | Wait:
        answer: Permit | Wait = await self.pace(Take(lane, worker, ask))
        return answer

    async def give_permit(
        self,
        lane: str,
        permit: Permit,
        hint: Hint | None,
        ask: Ask,
        *,
        is_over: bool = True,
    ) -> Given:
        given: Given = await self.pace(Give(lane, permit, hint, ask, is_over))
        return given

    async def lanes(self) -> Sequence[LaneView]:
        now = await self.lane_time()
        return await self.read(lambda connection: _listing(connection, now))


def perform(
    connection: Connection, clock: Callable[[], Instant], acts: Sequence[Act]
) -> list[Answer]:
    """Take and give permits, in this order, under the lanes' locks."""
    names = sorted({act.lane for act in acts})
    states = _locked(connection, names)
    connection.execute(_SWEEP, {"names": names})
    # Read after the lock: nobody's instant is later than one that was written.
    now = clock()
    enlisted = _enlisted(connection, acts)
    held = {name: _held(connection, states[name]) for name in names}
    given: list[dict[str, Any]] = []
    answers: list[Answer] = []
    for act in acts:
        state = states[act.lane]
        if isinstance(act, Give):
            states[act.lane], told = _given(connection, state, act, now)
            if act.is_over:
                held[act.lane] = _without(connection, act.permit, held[act.lane], given)
            answers.append(told)
        elif act.worker not in enlisted:
            answers.append(WorkerLost())
        else:
            state, answer = take(state, act.ask, held=held[act.lane], now=now)
            states[act.lane] = state
            answers.append(answer)
            if isinstance(answer, Permit):
                given.append(_row(act, answer))
                held[act.lane] = _with(answer, held[act.lane])
    if given:
        connection.execute(sa.insert(permits), given)
    for name in names:
        connection.execute(_STORE, {"lane": name, "state": _written(states[name])})
    return answers


def _locked(connection: Connection, names: Sequence[str]) -> dict[str, LaneState]:
    """Lock lanes in the order of their names, and make those that are not there."""
    found = _by_name(connection.execute(_LOCK, {"names": names}))
    if len(found) < len(names):
        for name in names:
            connection.execute(_MAKE, {"name": name})
        found = _by_name(connection.execute(_LOCK, {"names": names}))
    return found


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
) -> tuple[LaneState, Given]:
    before = state.parkings
    state = give(state, act.permit, act.hint, now=now)
    if act.hint is None or not act.hint.is_refused:
        return state, Given()
    if state.parkings > before:
        _tell(connection, state, now)
    state, wait = come_again(state, act.ask, now=now)
    return state, Given(state.parkings > before, wait)


def _with(permit: Permit, held: Held) -> Held:
    return Held(held.calls + 1, held.has_probe or permit.is_probe)


def _without(
    connection: Connection, permit: Permit, held: Held, given: list[dict[str, Any]]
) -> Held:
    """Free a permit; it may be one of this very batch, or gone already."""
    fresh = [row for row in given if row["id"] == permit.id]
    for row in fresh:
        given.remove(row)
    gone = len(fresh) or connection.execute(_FREE, {"permit": permit.id}).rowcount
    return Held(held.calls - gone, held.has_probe and not (gone and permit.is_probe))


def _row(act: Take, permit: Permit) -> dict[str, Any]:
    return {"id": permit.id, "lane": act.lane, "worker": act.worker, "at": permit.at}


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
