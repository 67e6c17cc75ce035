"""Runs one seed, from its first process to its audit."""

import asyncio
from collections import Counter
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import structlog

from backburner.domain.jobs.job import JobState
from backburner.testing import auditor, records
from backburner.testing.records import Breach
from backburner.testing.simulation.client import Client, Request
from backburner.testing.simulation.evidence import (
    complete,
    own_breaches,
    standing_breaches,
)
from backburner.testing.simulation.fate import Fate
from backburner.testing.simulation.groups import Asked
from backburner.testing.simulation.line import Line, Observer
from backburner.testing.simulation.loop import Deadlock, Livelock
from backburner.testing.simulation.process import Unit
from backburner.testing.simulation.purse import hold
from backburner.testing.simulation.signals import signal_all
from backburner.testing.simulation.work import CAPABILITIES
from backburner.testing.simulation.world import LIMITS, Variant, World

TROUBLED_SECONDS: Final = 4.5
"""How long faults are injected …"""
ASKING_SECONDS: Final = 3.5
"""… and how long clients send requests."""
LOOK_SECONDS: Final = 0.5
UNREST: Final = """
SELECT 1 FROM jobs WHERE state NOT IN ('succeeded','failed','cancelled')
 UNION ALL SELECT 1 FROM flows WHERE state = 'running'
 UNION ALL SELECT 1 FROM batches WHERE state = 'open' AND sealed
 UNION ALL SELECT 1 FROM holds WHERE is_open
 LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a seed."""

    seed: int
    breaches: Sequence[Breach]
    digest: str
    """Equal for equal runs."""
    passed: Counter[str]
    """How often each failpoint was passed."""
    crashed: Counter[str]
    """How often a process ended at each failpoint."""
    moves: Counter[tuple[JobState, JobState]]
    """How often jobs changed from one state to another."""
    followed: Counter[str]
    """How often jobs with a completion ended, by cause."""
    trace: Sequence[str]


def simulate(
    seed: int, variant: Variant | None = None, *, tracing: bool = False
) -> Outcome:
    """Run a seed and audit its data."""
    world = World(seed, variant or Variant(), CAPABILITIES, tracing=tracing)
    try:
        with _logs_of(world):
            breaches = list(_live(world))
        books = records.read(world.disk.reading)
        complete(world.ledger, world.disk)
        breaches += auditor.audit_books(books, world.ledger, LIMITS)
        breaches += [*world.breaches, *own_breaches(world)]
        return Outcome(
            seed=seed,
            breaches=breaches,
            digest=world.trace.digest(books, world.loop.steps),
            passed=world.passed,
            crashed=world.crashed,
            moves=auditor.moves(books.jobs.values()),
            followed=auditor.followed_ends(books.jobs.values()),
            trace=world.trace.lines,
        )
    finally:
        world.close()


def _live(world: World) -> Iterator[Breach]:
    """Run a world to its end; yield breaches that concern no job."""
    try:
        world.loop.run_until_complete(world.spawn(_life(world)))
    except (Deadlock, Livelock) as error:
        yield Breach("life", "", repr(error))
    raised = [
        task.exception()
        for task in world.loop.tasks
        if task.done() and not task.cancelled()
    ]
    for problem in (*raised, *world.loop.failures):
        if isinstance(problem, Exception):
            yield Breach("life", "", f"{problem!r} was raised")


async def _life(world: World) -> None:
    units = _make_units(world)
    for unit in units:
        unit.start()
    fate = Fate(world, units)
    keyed: dict[str, Request] = {}
    grouped: dict[str, Asked] = {}
    line = Line(world, units)
    clients = [Client(world, line, keyed, grouped) for _ in range(2)]
    observer = Observer(world, line)
    world.spawn(observer.observe())
    world.spawn(_look_on(world))
    if world.patience.is_used:
        world.spawn(signal_all(world, line))
    busy = [world.spawn(fate.strike(TROUBLED_SECONDS))]
    busy += [world.spawn(client.ask(ASKING_SECONDS)) for client in clients]
    if world.post.is_used:
        busy.append(world.spawn(fate.strike_post(TROUBLED_SECONDS)))
    if world.purse.is_limited:
        busy.append(world.spawn(hold(world, line, ASKING_SECONDS)))
    await asyncio.wait(busy)
    fate.relent()
    await _rest(world, clients, observer)
    world.ledger.stream = observer.seen


async def _look_on(world: World) -> None:
    """Check periodically what must always hold."""
    while not world.breaches:
        await world.sleep(LOOK_SECONDS)
        world.breaches += standing_breaches(world)


async def _rest(world: World, clients: Sequence[Client], observer: Observer) -> None:
    """Wait until every job has ended and readers have read everything."""
    end = world.loop.time() + world.variant.healing
    while world.loop.time() < end:
        await world.sleep(LOOK_SECONDS)
        if any(told.invariant != "life" for told in world.breaches):
            return  # it is broken, so it may never come to rest
        [(last,)] = world.disk.rows("SELECT coalesce(max(seq), 0) FROM events")
        is_read = not any(client.reads for client in clients)
        is_seen = max(observer.seen, default=0) >= last
        is_behind = world.application.is_behind(world.disk)
        if is_read and is_seen and not is_behind and not world.disk.rows(UNREST):
            return
    if not (is_read and is_seen) or is_behind:
        world.protest("readers still wait for what happened")


def _make_units(world: World) -> Sequence[Unit]:
    """Create two to four processes; the second only serves, the first two translate."""
    units: list[Unit] = []
    for index in range(world.random.randint(2, 4)):
        slots = 0 if index == 1 else world.random.choice((2, 5, 20))
        translates = world.application.is_used and index < 2
        name = f"p{index}"
        units.append(Unit(world, name, slots=slots, translates=translates, peers=units))
    return units


@contextmanager
def _logs_of(world: World) -> Iterator[None]:
    """Record the engine's log lines; an error that is not the store's is a breach."""

    def keep(_logger: Any, level: str, line: MutableMapping[str, Any]) -> str:
        world.note(level, line)
        if level == "error" and line.get("error_type") != "StoreUnavailable":
            world.protest(str(line))
        raise structlog.DropEvent

    was_configured, before = structlog.is_configured(), structlog.get_config()
    structlog.configure(
        processors=[keep],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        if was_configured:
            structlog.configure(**before)
        else:
            structlog.reset_defaults()
