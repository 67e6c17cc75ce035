"""What the processes of a simulation share: database, time and random numbers."""

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
"""The share of worlds with a message broker."""
WRITING: Final = 0.6
"""The share of worlds in which handlers have their own transactions."""
FOLLOWED: Final = 0.5
"""The share of worlds in which jobs have completions."""
COMPLETIONS: Final = (
    {"capability": "sim.done"},
    {"capability": "sim.work", "input": {"steps": ["succeed"], "effect": True}},
    {"capability": "sim.other", "input": {"steps": ["kill process", "give up"]}},
)
LIMITED: Final = 0.4
"""The share of worlds with budgets."""
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
    """How often a worker claims without messages."""
    healing: float = 600.0
    """How long everything may take to come to rest after the last fault."""
    crash_at: str = ""
    """The failpoint at which processes end; empty: drawn at random."""


class Nature(NamedTuple):
    """Properties of a world that do not change."""

    delay: float
    """The probability of a slow call to the store."""
    loss: float
    """The probability that a notification is lost."""
    keep: timedelta
    """The retention of ended jobs."""


class Purse:
    """Draws estimates and usage of jobs, with its own random numbers."""

    def __init__(self, seed: int) -> None:
        self.lots = random.Random(f"purse {seed}")
        self.is_limited = self.lots.random() < LIMITED
        """Whether this world has budgets."""

    @property
    def budgets(self) -> Sequence[str]:
        """The statements that create the budgets."""
        return BUDGETS if self.is_limited else ()

    def estimate(self) -> int | None:
        """Draw the estimate of a job."""
        return self.lots.choice((None, 0, 5, 20) if self.is_limited else (None, 1, 500))

    def use(self) -> int | None:
        """Draw the usage of a run, if it reports any."""
        return self.lots.choice((None, 0, 5, 30)) if self.is_limited else None


class Pen:
    """Draws what handlers write while they run, with its own random numbers."""

    def __init__(self, seed: int) -> None:
        self.lots = random.Random(f"writes {seed}")
        self.is_used = self.lots.random() < WRITING
        """Whether handlers of this world write."""

    def draw(self) -> int:
        """Draw how often a run writes."""
        return self.lots.choice((0, 1, 2)) if self.is_used else 0

    def pause(self) -> float:
        """Draw how long a run takes before it writes."""
        # Longer than a lease, too: the process is then frozen before it writes.
        return round(self.lots.choice((0.0, LEASE, 3 * LEASE)) * self.lots.random(), 3)


class Sequels:
    """Draws the completions of jobs, with its own random numbers."""

    def __init__(self, seed: int) -> None:
        self.lots = random.Random(f"completions {seed}")
        self.are_asked = self.lots.random() < FOLLOWED
        """Whether jobs of this world have completions."""

    def draw(self) -> Mapping[str, Any] | None:
        """Draw the completion of a job, if it has one."""
        if not self.are_asked:
            return None
        return self.lots.choice((None, *COMPLETIONS))


class Post:
    """The broker of a world, if it has one, with its own random numbers."""

    def __init__(self, seed: int) -> None:
        self.lots = random.Random(f"hints {seed}")
        self.is_used = self.lots.random() < BROKERED
        """Whether this world has a broker."""
        self.doubt = self.lots.choice((0.0, 0.02))
        """The probability that it fails after it has done its work."""
        self.server = MemoryServer(
            Mischief(
                copies=self.lots.choice((1, 1, 3)),
                loss=self.lots.choice((0.0, 0.1, 0.5)),
                is_shuffled=self.lots.choice((False, True)),
                lots=self.lots,
            )
        )

    def trouble(self) -> None:
        """Raise now and then, although the work is done."""
        if self.lots.random() < self.doubt:
            raise BrokerUnavailable("no answer, on purpose")

    def relent(self) -> None:
        """Stop failing."""
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
        """Record what happens."""
        line = " ".join((f"{self._time():.6f}", *map(str, words)))
        self._hash.update(line.encode())
        if self._keeps:
            self.lines.append(line)

    def digest(self, *more: object) -> str:
        """Return the hash of all records, and of `more`."""
        told = self._hash.copy()
        told.update(repr(more).encode())
        return told.hexdigest()


class World:
    """The simulated world of one seed."""

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
        """The context of everything outside of processes: clients and faults."""
        self.ledger = Ledger()
        self.runs: Counter[str] = Counter()
        """How often the handler of each job was called."""
        self.passed: Counter[str] = Counter()
        """How often each failpoint was passed."""
        self.crashed: Counter[str] = Counter()
        """How often a process ended at each failpoint."""
        self.breaches: list[Breach] = []
        """Breaches that were noticed during the run."""
        self.stopped: list[Worker] = []
        """Workers that were stopped gracefully."""
        self.hearts: list[Heart] = []
        """All hearts: a collected one would roll back the writes of others."""
        self.doom: Callable[[], Doom] | None = None
        """Draws where a new process will end."""
        self.is_out = False
        """Whether the store is unavailable."""
        self.writes_at = 0.0
        """
        Until this time the disk accepts no write; delayed writes then happen at once.
        """
        self.nature = Nature(
            delay=self.random.choice((0.0, 0.02, 0.1)),
            loss=self.random.choice((0.0, 0.1, 0.5)),
            keep=timedelta(seconds=self.random.choice((1, 600))),
        )

    def note(self, *words: object) -> None:
        """Record what happens."""
        self.trace.note(*words)

    def now_ms(self) -> int:
        """Return the machine's monotonic time."""
        return int(self.loop.time() * 1000)

    def protest(self, told: str) -> None:
        """Record a breach."""
        self.breaches.append(Breach("life", "", told))

    def happens(self, chance: float) -> bool:
        """Draw whether something happens."""
        return self.random.random() < chance

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        """Run a coroutine outside of all processes."""
        return self.loop.create_task(coroutine, context=self.context)

    def later(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """Call back after a delay, whichever processes have ended."""
        self.loop.call_later(delay, callback, *args, context=self.context)

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)  # noqa: TID251 - the loop owns the time

    async def dawdle(self) -> None:
        """Take as long as a store may: usually milliseconds, sometimes seconds."""
        slow = self.happens(self.nature.delay)
        most = self.random.choice((0.1, 1.0, 4.0)) if slow else 0.003
        await self.sleep(round(self.random.random() * most, 3))

    def trouble(self) -> None:
        """Raise the store's error while it is unavailable."""
        if self.is_out and self.happens(0.5):
            raise StoreUnavailable("out of order on purpose")

    def close(self) -> None:
        """Close the loop and the database."""
        self.loop.close()
        self.hearts.clear()
        self.disk.close()
