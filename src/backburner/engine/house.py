"""What a worker runs with."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from backburner.domain.flow import NewStep
from backburner.domain.job import Claim
from backburner.engine.asking import Providers
from backburner.engine.context import Storage, Submit
from backburner.engine.courier import Courier
from backburner.engine.flow import Planned
from backburner.engine.intake import Intake
from backburner.engine.outbound import Http
from backburner.engine.payloads import Payloads
from backburner.engine.registry import Registry
from backburner.engine.transaction import Transaction
from backburner.ports.app_settings import AppSettings
from backburner.ports.bell import Bell
from backburner.ports.clock import Clock, Dice
from backburner.ports.faults import Faults
from backburner.ports.prices import NoPrices, Prices
from backburner.ports.store import Store, Tx


@dataclass(frozen=True, slots=True)
class House:
    """What stands around a worker."""

    store: Store
    bell: Bell
    clock: Clock
    dice: Dice
    faults: Faults
    registry: Registry
    submit: Submit
    wrap: Callable[[Tx, Claim], Transaction]
    """Give a store's transaction the shape that bodies get."""
    storage: Storage | None = None
    """The database, as handlers may use it."""
    payloads: Payloads = field(default_factory=Payloads)
    plan: Callable[[Sequence[Planned], Claim], Sequence[NewStep]] | None = None
    """Check steps that a handler added to its flow."""
    touch: Callable[[Iterable[int]], None] | None = None
    """Have batches looked at in which something ended."""
    prices: Prices = field(default_factory=NoPrices)
    mourn: Callable[[], None] = lambda: None
    """Be told that a job failed."""
    intake: Intake | None = None
    """Where messages of a broker say what may be claimed, if one is used."""
    providers: Providers | None = None
    """Of models, for handlers to ask."""
    courier: Courier | None = None
    """Who delivers what handlers tell others, if this worker can sign."""
    app_settings: AppSettings = field(default_factory=AppSettings)
    http: Callable[[], Http] | None = None
    """Opens what sends the HTTP requests of handlers, when the first one asks."""
