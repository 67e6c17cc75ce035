"""The faults that a simulation injects into its processes."""

from collections.abc import Callable, Sequence
from typing import Final

from backburner.testing.simulation.process import Process, Unit
from backburner.testing.simulation.world import LEASE, Doom, World

TRANSACTIONS: Final = (
    "_remove_dead_workers",
    "_dismiss",
    "_enlist",
    "_touch",
    "claim",
    "move",
    "promote",
    "prune",
    "report",
    "save",
    "settle",
    "submit",
    "transact",
    "transact_claimed",
)
FAILPOINTS: Final = (
    *(f"{name}.before_commit" for name in TRANSACTIONS),
    *(f"{name}.after_commit" for name in TRANSACTIONS),
    "advance.released",
    "advance.told",
    "batch.finished",
    "batch.finishing",
    "ended.followed",
    "ledger.closed",
    "ledger.reserved",
    "relay.publish",
    "signal.stored",
    "signal.woken",
    "step.stored",
    "transact.claimed",
    "translate.published",
    "translate.read",
    "upkeep.workers_removed",
    "upkeep.promoted",
    "wait.opening",
    "wait.settling",
    "worker.claimed",
    "worker.settled",
    "worker.settling",
)
"""All failpoints."""

SELDOM: Final = tuple(
    name for name in FAILPOINTS if name.startswith(("_touch", "batch"))
)
RARELY: Final = (
    "_dismiss",
    "advance",
    "ended",
    "ledger",
    "move",
    "promote",
    "signal",
    "transact.",
    "transact_",
    "translate",
    "wait",
)
RARE: Final = (
    *SELDOM,
    *SELDOM,
    *(name for name in FAILPOINTS if name.startswith(RARELY)),
)
"""The failpoints to draw from; rarely passed ones are listed more often."""


def places_in(world: World, names: Sequence[str]) -> Sequence[str]:
    """Return the failpoints that processes of a world can pass."""
    absent: tuple[str, ...] = () if world.post.is_used else ("relay.",)
    absent += () if world.application.is_used else ("translate.",)
    absent += () if world.patience.is_used else ("save.", "signal.", "step.", "wait.")
    return [name for name in names if not name.startswith(absent)]


class Fate:
    """Injects random faults for a while, then ends them."""

    def __init__(self, world: World, units: Sequence[Unit]) -> None:
        self._world = world
        self._units = units
        kinds: list[Callable[[Process], None]] = [
            self._doom,
            self._doom,
            self._kill,
            self._freeze,
            self._block,
            self._step_clock,
            self._ask_to_stop,
            self._cut_store,
            self._stall_disk,
        ]
        self._places = places_in(world, FAILPOINTS)
        self._rare = places_in(world, RARE)
        # Only some kinds of faults in each world: too many at once hide each other.
        self._kinds = world.random.sample(kinds, k=world.random.randint(1, len(kinds)))
        self._pause = world.random.choice((0.1, 0.3, 0.8))
        if self._doom in self._kinds or world.variant.crash_at:
            world.doom = self._draw

    async def strike(self, seconds: float) -> None:
        """Inject faults into processes for `seconds`."""
        end = self._world.loop.time() + seconds
        while self._world.loop.time() < end:
            await self._world.sleep(self._world.random.expovariate(1 / self._pause))
            process = self._world.random.choice(self._units).process
            if process is not None:
                self._world.random.choice(self._kinds)(process)

    async def strike_post(self, seconds: float) -> None:
        """Inject faults into the broker for `seconds`."""
        post, end = self._world.post, self._world.loop.time() + seconds
        while self._world.loop.time() < end:
            await self._world.sleep(post.lots.expovariate(1 / self._pause))
            lot = post.lots.random()
            if lot < 0.3:
                self._world.note("the broker forgets")
                post.server.flush()
            elif lot < 0.6:
                self._world.note("the broker's connections are cut")
                post.server.cut()
            else:
                span = post.lots.random() * LEASE
                self._world.note("the broker is down:", f"{span:.3f}")
                post.server.stop()
                self._world.later(span, post.server.start)

    def relent(self) -> None:
        """Remove the faults that have not happened yet."""
        self._world.note("fate relents")
        self._world.post.relent()
        self._world.is_out = False
        self._world.doom = None
        for unit in self._units:
            if unit.process is not None:
                unit.process.doom = None

    def _draw(self) -> Doom:
        lots = self._world.random
        if place := self._world.variant.crash_at:
            return place, lots.choice((0, 1, 3))
        chosen = lots.choice(self._rare if self._world.happens(0.35) else self._places)
        return chosen, 0 if chosen in SELDOM else lots.choice((0, 0, 1, 3))

    def _doom(self, process: Process) -> None:
        process.doom = process.doom or self._draw()

    def _kill(self, process: Process) -> None:
        process.die("kill")

    def _freeze(self, process: Process) -> None:
        process.hold((0.5 + self._world.random.random()) * 2 * LEASE, heart=True)

    def _block(self, process: Process) -> None:
        process.hold(self._world.random.random() * 3 * LEASE, heart=False)

    def _step_clock(self, process: Process) -> None:
        process.unit.clock.skew += self._world.random.randint(-5_000, 5_000)

    def _ask_to_stop(self, process: Process) -> None:
        if self._world.doom is not None and self._world.happens(0.5):
            process.doom = (self._world.random.choice(self._rare), 0)
        process.spawn(process.stop(self._world.random.choice((0.0, 0.5, 3.0))))

    def _cut_store(self, _process: Process) -> None:
        self._world.is_out = True
        span = self._world.random.random() * 1.5 * LEASE
        self._world.note("the store is out:", f"{span:.3f}")
        self._world.later(span, self._mend_store)

    def _stall_disk(self, _process: Process) -> None:
        span = self._world.random.random() * LEASE
        self._world.note("the disk takes no writes:", f"{span:.3f}")
        self._world.writes_at = self._world.loop.time() + span

    def _mend_store(self) -> None:
        self._world.is_out = False
