"""A process: the real engine with the real statements, until a fault ends it."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final, NoReturn, TypeVar

from backburner.domain.errors import BrokerUnavailable, StoreUnavailable
from backburner.domain.jobs.job import Claim, Submitted
from backburner.engine.broker.health import BrokerHealth
from backburner.engine.broker.intake import Intake
from backburner.engine.broker.relay import Relay
from backburner.engine.engine import Engine
from backburner.engine.maintenance.translating import Translator
from backburner.engine.maintenance.upkeep import Upkeep, UpkeepOptions
from backburner.engine.run.heartbeat import Heartbeat, Pulse
from backburner.engine.run.runtime import Runtime
from backburner.engine.run.worker import Worker, WorkerOptions
from backburner.engine.submit.submission import Options, Submission
from backburner.engine.watch import Watch
from backburner.ports.broker import BrokerMessage
from backburner.ports.store.maintenance import Retention
from backburner.ports.store.workers import Vitals
from backburner.stores.sqlite.reader import InlineReader
from backburner.stores.sqlite.store import SqliteStore
from backburner.stores.sqlite.writer import InlineWriter
from backburner.testing.doubles import SeededDice
from backburner.testing.simulation.application import NAME
from backburner.testing.simulation.loop import Lane
from backburner.testing.simulation.ports import (
    FailingHeart,
    LaneHeartbeat,
    LossyNotifier,
    SkewedClock,
    SlowBroker,
    SlowReader,
    SlowWriter,
)
from backburner.testing.simulation.world import BEAT, LEASE, LIMITS, World

T = TypeVar("T")

PROCESS: contextvars.ContextVar["Process"] = contextvars.ContextVar("PROCESS")
"""The process that a handler runs in."""

PRUNE_EVERY: Final = 4.0
DOWN_SECONDS: Final = 2.0
"""The maximum number of seconds until an ended process is replaced."""


class Crash(BaseException):
    """The process ends here, without cleaning up."""


class Disconnected(Exception):
    """The process that a client called has ended; the result of the call is unknown."""


class Unit:
    """A place for a process: when it ends, another one is started."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        slots: int,
        translates: bool = False,
        peers: Sequence["Unit"],
    ) -> None:
        self.world = world
        self.name = name
        self.slots = slots
        """How many jobs it runs at once; 0 if it only serves."""
        self.translates = translates
        """Whether its processes have loaded the application."""
        self.peers = peers
        """All units, including this one."""
        self.clock = SkewedClock(world)
        self.process: Process | None = None

    def start(self) -> None:
        """Start a process, unless one is running."""
        if self.process is None:
            self.process = Process(self)
            self.process.spawn(self.process.run())


class Process:
    """One process of a unit, from its start to its end."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.world = unit.world
        self.doom = self.world.doom() if self.world.doom else None
        self.calls: dict[asyncio.Future[Any], None] = {}
        """Pending calls of clients."""
        self._lane, self._heart_lane = Lane(unit.name), Lane(f"{unit.name} heart")
        self.context = self._enter(self._lane)
        self.heart_context = self._enter(self._heart_lane)
        self.notifier = LossyNotifier(self.world, self._hearers)
        self._store = self._make_store()
        self._broker = SlowBroker(self.world)
        self._broker_health = BrokerHealth("memory")
        self._relay = self._make_relay() if self.world.post.is_used else None
        self._local_notifier = self._relay or self.notifier
        self._dice = SeededDice(self.world.random.getrandbits(64))
        self._watch = Watch(
            self._store, self._local_notifier, poll=self.world.variant.poll
        )
        self.engine = Engine(
            store=self._store,
            notifier=self._local_notifier,
            clock=unit.clock,
            registry=self.world.registry,
            submission=Submission(self.world.registry, unit.clock, self._dice),
            watch=self._watch,
            faults=self,
            relay=self._relay,
        )
        self._worker: Worker | None = None
        self.world.note(unit.name, "starts")

    @property
    def is_dead(self) -> bool:
        """Whether the process has ended."""
        return self._lane.is_dead

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        """Run a coroutine in this process."""
        return self.world.loop.create_task(coroutine, context=self.context)

    async def run(self) -> None:
        """Work and serve until the end."""
        if self._relay is not None:
            try:
                await self._broker.open()
            except BrokerUnavailable:
                self.die("start")
                return
            self._relay.start()
        batches = self.engine.batches
        Upkeep(
            self._store,
            self._local_notifier,
            self.unit.clock,
            self,
            self._upkeep_options(),
            batches=batches,
        ).start()
        batches.start()
        self._watch.start()
        try:
            if self.unit.translates:
                await self._make_translator().start()
            if self.unit.slots:
                worker = self._make_worker()
                await worker.start()
                self._worker = worker
        except StoreUnavailable:
            self.die("start")

    async def serve(
        self, verb: Callable[[Engine], Awaitable[T]], answer: "asyncio.Future[T]"
    ) -> None:
        """Run a client's call and answer it."""
        try:
            result = await verb(self.engine)
        except Exception as error:  # noqa: BLE001 - passed on to the client
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(result)

    def hit(self, name: str) -> None:
        """Pass a failpoint, or end the process there."""
        self.world.passed[name] += 1
        self.world.note(self.unit.name, name)
        if self.doom is not None and self.doom[0] == name:
            if self.doom[1] <= 0:
                self.crash(name)
            self.doom = (name, self.doom[1] - 1)

    def crash(self, where: str) -> NoReturn:
        """End the process at this point."""
        self.world.crashed[where] += 1
        self.die(where)
        raise Crash(where)

    def die(self, why: str) -> None:
        """End the process; only the data in the store is left."""
        if self.is_dead:
            return
        self.world.note(self.unit.name, "ends:", why)
        self._lane.kill()
        self._heart_lane.kill()
        self._broker.cut()
        self.unit.process = None
        for answer in tuple(self.calls):
            if not answer.done():
                answer.set_exception(Disconnected(self.unit.name))
        self.world.later(self.world.random.random() * DOWN_SECONDS, self.unit.start)

    def hold(self, seconds: float, *, heart: bool) -> None:
        """Stop running for `seconds`; with `heart` the heartbeat too, as if frozen."""
        self.world.note(self.unit.name, "stands still:", f"{seconds:.3f}", heart)
        for lane in (self._lane, self._heart_lane)[: 1 + heart]:
            lane.is_held = True
            self.world.later(seconds, setattr, lane, "is_held", False)

    async def stop(self, grace: float) -> None:
        """Stop gracefully."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self.world.stopped.append(worker)
            await worker.stop(grace)
            self.die("stop")

    def _enter(self, lane: Lane) -> contextvars.Context:
        context = self.world.loop.add(lane)
        context.run(PROCESS.set, self)
        return context

    def _hearers(self) -> Sequence["Process"]:
        return [unit.process for unit in self.unit.peers if unit.process is not None]

    def _make_store(self) -> SqliteStore:
        world = self.world
        store = world.variant.store(
            world.disk.database,
            self.unit.clock,
            queries=world.variant.queries,
            faults=self,
        )
        disk = world.disk
        writer = InlineWriter(disk.database, store.begin, disk.writing)
        reader = InlineReader(disk.reading)
        store.attach(SlowWriter(writer, world), SlowReader(reader, world))
        return store

    def _make_relay(self) -> Relay:
        return Relay(
            self._store,
            self._broker,
            self.notifier,
            self.unit.clock,
            self,
            self._broker_health,
            look=self.world.variant.look,
        )

    def _make_intake(self) -> Intake:
        return Intake(
            self._broker,
            self._broker_health,
            self.unit.clock,
            self._refuse,
            sweep=self.world.variant.sweep,
        )

    async def _refuse(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        self.world.protest(f"{len(messages)} on {queue} are not ours")

    def _make_translator(self) -> Translator:
        application = self.world.application
        return Translator(
            NAME,
            application.translation,
            application.selection,
            engine=self.engine,
            notifier=self._local_notifier,
            faults=self,
            poll=self.world.variant.poll,
        )

    def _make_worker(self) -> Worker:
        variant = self.world.variant
        runtime = Runtime(
            store=self._store,
            notifier=self._local_notifier,
            clock=self.unit.clock,
            dice=self._dice,
            faults=self,
            registry=self.world.registry,
            submit=self._submit,
            engine=self.engine,
            intake=self._make_intake() if self.world.post.is_used else None,
        )
        options = WorkerOptions(
            slots=self.unit.slots, poll=variant.poll, beat=BEAT, limits=LIMITS
        )
        return Worker(runtime, options, self._heartbeat)

    def _heartbeat(
        self,
        lost: Callable[[str], None],
        running: Callable[[], int],
        _current: Callable[[], Claim | None],
    ) -> Heartbeat:
        heart = FailingHeart(self._store.heart(), self.world)
        self.world.hearts.append(heart)
        lease = int(LEASE * 1000)
        pulse = Pulse(
            *(heart, self.unit.clock),
            lease_ms=lease,
            lost=lost,
            vitals=lambda: Vitals(running(), 0, None),
        )
        return LaneHeartbeat(pulse, self.world, self.heart_context)

    def _upkeep_options(self) -> UpkeepOptions:
        keep = self.world.nature.keep
        return UpkeepOptions(
            poll=self.world.variant.poll,
            lease=timedelta(seconds=LEASE),
            rescue_every=self.world.variant.rescue_every,
            prune_every=PRUNE_EVERY,
            limits=LIMITS,
            retention=Retention(succeeded=keep, failed=2 * keep, cancelled=keep),
        )

    async def _submit(self, capability: Any, value: Any, **options: Any) -> Submitted:
        return await self.engine.submit(capability, value, Options(**options))
