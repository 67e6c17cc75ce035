"""What a worker runs with."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backburner.domain.groups.flow import NewStep
from backburner.domain.jobs.job import Claim
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.broker.intake import Intake
from backburner.engine.flow import Planned
from backburner.engine.models.asking import Providers
from backburner.engine.registry import Registry
from backburner.engine.run.outbound import Http
from backburner.engine.run.services import Storage, Submit
from backburner.engine.transaction import Transaction
from backburner.engine.webhooks.callback_sender import CallbackSender
from backburner.ports.app_settings import AppSettings
from backburner.ports.clock import Clock, Dice
from backburner.ports.faults import Faults
from backburner.ports.notifier import Notifier
from backburner.ports.prices import NoPrices, Prices
from backburner.ports.store import Store
from backburner.ports.store.transactions import Tx


class JobEngine(Storage, Protocol):
    """The engine, as far as it takes part in running and settling jobs."""

    def wrap(self, tx: Tx, parent: Claim) -> Transaction:
        """Return the transaction object that bodies receive."""
        ...

    def plan_steps(self, added: Sequence[Planned], claim: Claim) -> Sequence[NewStep]:
        """Check steps that a handler added to its flow."""
        ...

    def touch_batches(self, batches: Iterable[int]) -> None:
        """Check these batches soon, because a member of each has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Runtime:
    """What stands around a worker."""

    store: Store
    notifier: Notifier
    clock: Clock
    dice: Dice
    faults: Faults
    registry: Registry
    submit: Submit
    engine: JobEngine
    payloads: Payloads = field(default_factory=Payloads)
    prices: Prices = field(default_factory=NoPrices)
    on_job_failed: Callable[[], None] = lambda: None
    """Note that a job has failed permanently."""
    intake: Intake | None = None
    """Where messages of a broker say what may be claimed, if one is used."""
    providers: Providers | None = None
    """Of models, for handlers to ask."""
    callback_sender: CallbackSender | None = None
    """Who delivers what handlers tell others, if this worker can sign."""
    app_settings: AppSettings = field(default_factory=AppSettings)
    http: Callable[[], Http] | None = None
    """Opens what sends the HTTP requests of handlers, when the first one asks."""
