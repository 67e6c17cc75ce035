"""Everything that a worker and its attempts run with."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backburner.domain.groups.flow import NewStep
from backburner.domain.jobs.job import Claim
from backburner.engine.broker.intake import Intake
from backburner.engine.flow import Planned
from backburner.engine.registry import Registry
from backburner.engine.run.services import Services, Storage
from backburner.engine.transaction import Transaction
from backburner.ports.clock import Clock, Dice
from backburner.ports.faults import Faults
from backburner.ports.notifier import Notifier
from backburner.ports.prices import NoPrices, Prices
from backburner.ports.store import Store
from backburner.ports.store.transactions import Tx


class JobEngine(Storage, Protocol):
    """The part of the engine that running and settling jobs needs."""

    def wrap(self, tx: Tx, parent: Claim) -> Transaction:
        """Return the transaction object that bodies receive."""
        ...

    def plan_steps(self, added: Sequence[Planned], claim: Claim) -> Sequence[NewStep]:
        """Validate steps that a handler added to its flow."""
        ...

    def touch_batches(self, batches: Iterable[int]) -> None:
        """Check these batches soon, because a member of each has ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime(Services):
    """
    Everything that a worker, its attempts and its settler use.

    Handlers see it through their context, as `Services`. The worker adds its own parts:
    the sinks for output and usage, and its lanes.
    """

    engine: JobEngine
    store: Store
    notifier: Notifier
    clock: Clock
    dice: Dice
    faults: Faults
    registry: Registry
    prices: Prices = field(default_factory=NoPrices)
    on_job_failed: Callable[[], None] = lambda: None
    """Called after a job has failed permanently."""
    intake: Intake | None = None
    """Receives broker messages, which permit claims; `None` without a broker."""
