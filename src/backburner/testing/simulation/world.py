"""What the processes of a simulation share: one disk, one time, one source of luck."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple

from backburner.domain.errors import BrokerUnavailable, StoreUnavailable
from backburner.domain.jobs.transitions import Limits
from backburner.engine.registry import Registry
from backburner.engine.run.worker import Worker
from backburner.ports.store.workers import Heart
from backburner.stores.sqlite.queries import Queries
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.auditor import Ledger
from backburner.testing.broker.memory import MemoryServer, Mischief
from backburner.testing.records import Breach
from backburner.testing.simulation.application import Application
from backburner.testing.simulation.disk import Disk
from backburner.testing.simulation.loop import Lane, SeededLoop
from backburner.testing.simulation.patience import Patience

BEAT: Final = 0.5
LEASE: Final = 2.0
POLL: Final = 1.0
LIMITS: Final = Limits(throttled=timedelta(seconds=2))

BROKERED: Final = 0.3
"""How many worlds have a message broker."""
WRITING: Final = 0.6
"""In how many worlds handlers have transactions of their own."""
FOLLOWED: Final = 0.5
"""In how many worlds jobs have completions."""
COMPLETIONS: Final = (
    {"capability": "sim.done"},
    {"capability": "sim.work", "input": {"steps": ["succeed"], "effect": True}},
    {"capability": "sim.other", "input": {"steps": ["kill process", "give up"]}},
)
LIMITED: Final = 0.4
"""How many worlds have budgets."""
BUDGETS: Final[Sequence[str]] = (
    """
    INSERT INTO budgets (scope, value, unit, per, ceiling, is_declared)
    VALUES ('user', '', 'tokens', 3000, 60, 1), ('tenant', '', 'tokens', 20000, 400, 1)
    """,
)

Doom = tuple[str, int]
"""The failpoint at which a process ends, and how often it is passed before."""


@dataclass(frozen=True, slots=True)
class Variant:
    """The code under test; a mutation replaces a part of it."""

    queries: Queries = field(default_factory=Queries.load)
    schema: Sequence[str] = ()
    """Statements that change the schema of the store."""
    store: type[SqliteStore] = SqliteStore
    poll: float = POLL
    rescue_every: float = POLL
    look: float = 3 * POLL
    """How often the broker is compared with the store."""
    sweep: float = 15 * POLL
    """How often a worker claims what no message told of."""
    healing: float = 600.0
    """How long everything may take to come to rest after fate's last strike."""
    crash_at: str = ""
    """The failpoint at which processes end; empty: wherever fate has it."""


class Nature(NamedTuple):
    """How a world is, from beginning to end."""

    delay: float
    """How often a call to the store takes long."""
    loss: float
    """How often a notification is lost."""
    keep: timedelta
    """How long finished jobs are kept."""


class Purse:
    """What jobs may cost and do cost, drawn apart from everything else."""

    def __init__(self, seed: int) -> None:
        self.lots = random.Random(f"purse {seed}")
        self.is_limited = self.lots.random() < LIMITED
        """Whether there are budgets in this world."""

    @property
    def budgets(self) -> Sequence[str]:
        """The statements that make them."""
        return BUDGETS if self.is_limited else ()

    def estimate(self) -> int | None:
        """Draw what a job is said to cost."""
        return self.lots.choice((None, 0, 5, 20) if self.is_limited else (None, 1, 500))

    def use(self) -> int | None:
        """Draw what a run uses, if it tells."""
        return self.lots.choice((None, 0, 5, 30)) if self.is_limited else None


class Pen:
    """What handlers write while they run, drawn apart from everything else."""

    def __init__(self, seed: int) -> None:
        self.lots = random.Random(f"writes {seed}")
        self.is_used = self.lots.random() < WRITING
        """Whether handlers of this world write."""

    def draw(self) -> int:
        """Draw how often a run writes."""
        return self.lots.choice((0, 1, 2)) if self.is_used else 0

    def pause(self) -> float:
        """Draw how long a run takes before it writes."""
        # Longer than a lease, too: a process is then frozen before it writes.
        return round(self.lots.choice((0.0, LEASE, 3 * LEASE)) * self.lots.random(), 3)


class Sequels:
    """The completions of jobs, drawn apart from everything else."""

    def __init__(self, seed: int) -> None:
        self.lots = random.Random(f"completions {seed}")
        self.are_asked = self.lots.random() < FOLLOWED
        """Whether jobs have completions in this world."""

    def draw(self) -> Mapping[str, Any] | None:
        """Draw what is to follow a job's end, if anything."""
        if not self.are_asked:
            return None
        return self.lots.choice((None, *COMPLETIONS))


class Post:
    """The broker of a world, if it has one, drawn apart from everything else."""

    def __init__(self, seed: int) -> None:
        self.lots = random.Random(f"hints {seed}")
        self.is_used = self.lots.random() < BROKERED
        """Whether there is a broker in this world."""
        self.doubt = self.lots.choice((0.0, 0.02))
        """How often it does what it is asked and does not say so."""
        self.server = MemoryServer(
            Mischief(
                copies=self.lots.choice((1, 1, 3)),
                loss=self.lots.choice((0.0, 0.1, 0.5)),
                is_shuffled=self.lots.choice((False, True)),
                lots=self.lots,
            )
        )

    def trouble(self) -> None:
        """Raise, every now and then, though what was asked for is done."""
        if self.lots.random() < self.doubt:
            raise BrokerUnavailable("no answer, on purpose")

    def relent(self) -> None:
        """Be a broker as one should be."""
        self.doubt = 0.0
        self.server.start()
        self.server.mischief.loss = 0.0


class Trace:
    """All that happens, in order, and its hash."""

    def __init__(self, time: Callable[[], float], *, keeps: bool) -> None:
        self.lines: list[str] = []
        self._time = time
        self._keeps = keeps
        self._hash = sha256()

    def note(self, *words: object) -> None:
        """Put down what happens."""
        line = " ".join((f"{self._time():.6f}", *map(str, words)))
        self._hash.update(line.encode())
        if self._keeps:
            self.lines.append(line)

    def digest(self, *more: object) -> str:
        """Return the hash of all that was put down, and of `more`."""
        told = self._hash.copy()
        told.update(repr(more).encode())
        return told.hexdigest()


class World:
    """One seed's universe."""

    def __init__(  # noqa: PLR0915 - all that a world has
        self, seed: int, variant: Variant, registry: Registry, *, tracing: bool
    ) -> None:
        self.variant = variant
        self.registry = registry
        self.random = random.Random(seed)
        self.purse, self.sequels = Purse(seed), Sequels(seed)
        self.post = Post(seed)
        self.pen = Pen(seed)
        self.patience = Patience(seed)
        self.application = Application(seed)
        self.loop = SeededLoop(self.random)
        changes = (*variant.schema, *self.purse.budgets, *self.application.tables)
        self.disk = Disk(self.now_ms, changes)
        self.trace = Trace(self.loop.time, keeps=tracing)
        self.context = self.loop.add(Lane("world"))
        """Where everything runs that is not of a process: clients, and fate."""
        self.ledger = Ledger()
        self.runs: Counter[str] = Counter()
        """How often the handler of each job was called."""
        self.passed: Counter[str] = Counter()
        """How often each failpoint was passed."""
        self.crashed: Counter[str] = Counter()
        """How often a process ended at each."""
        self.breaches: list[Breach] = []
        """What should not have happened, by whoever saw it."""
        self.stopped: list[Worker] = []
        """Those that were asked to."""
        self.hearts: list[Heart] = []
        """All there ever were: one that is collected rolls back what others write."""
        self.doom: Callable[[], Doom] | None = None
        """Draws where a new process will end."""
        self.is_out = False
        """The store answers with errors for now."""
        self.writes_at = 0.0
        """Until then the disk takes no write: what comes meanwhile comes at once."""
        self.nature = Nature(
            delay=self.random.choice((0.0, 0.02, 0.1)),
            loss=self.random.choice((0.0, 0.1, 0.5)),
            keep=timedelta(seconds=self.random.choice((1, 600))),
        )

    def note(self, *words: object) -> None:
        """Put down what happens."""
        self.trace.note(*words)

    def now_ms(self) -> int:
        """Return the machine's monotonic time."""
        return int(self.loop.time() * 1000)

    def protest(self, told: str) -> None:
        """Note what should not have happened."""
        self.breaches.append(Breach("life", "", told))

    def happens(self, chance: float) -> bool:
        """Draw whether something happens."""
        return self.random.random() < chance

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        """Run a coroutine outside of all processes."""
        return self.loop.create_task(coroutine, context=self.context)

    def later(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """Call back after a while, whoever is dead by then."""
        self.loop.call_later(delay, callback, *args, context=self.context)

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)  # noqa: TID251 - the loop owns the time

    async def dawdle(self) -> None:
        """Take as long as a store may: hardly any time, or seconds."""
        slow = self.happens(self.nature.delay)
        most = self.random.choice((0.1, 1.0, 4.0)) if slow else 0.003
        await self.sleep(round(self.random.random() * most, 3))

    def trouble(self) -> None:
        """Raise what the store raises while it is out."""
        if self.is_out and self.happens(0.5):
            raise StoreUnavailable("out of order on purpose")

    def close(self) -> None:
        """End the world."""
        self.loop.close()
        self.hearts.clear()
        self.disk.close()
