"""
The store: the source of truth, in small contracts that one adapter fulfils.

Every method takes or returns lists. Concurrent calls of one process may share a commit,
but no caller sees another's failure. A method returns after its commit; what it wrote
then survives the process and, where it says *durable*, the machine. `StoreUnavailable`
means that the outcome is unknown: the commit may or may not have happened, and
repeating the call is safe.
"""

from collections.abc import AsyncIterator
from typing import Protocol

from backburner.ports.clock import Clock
from backburner.ports.finding import Finding
from backburner.ports.history import History
from backburner.ports.store.activity import ActivityStore
from backburner.ports.store.app_blobs import AppBlobStore
from backburner.ports.store.batches import BatchStore
from backburner.ports.store.budgets import BudgetStore
from backburner.ports.store.dead_letter_exports import DeadLetterExportStore
from backburner.ports.store.endpoints import EndpointStore
from backburner.ports.store.erasure import ErasureStore
from backburner.ports.store.events import EventLog
from backburner.ports.store.flows import FlowStore
from backburner.ports.store.forecasts import ForecastStore
from backburner.ports.store.jobs import JobStore
from backburner.ports.store.keys import KeyStore
from backburner.ports.store.lanes import LaneStore
from backburner.ports.store.maintenance import MaintenanceStore
from backburner.ports.store.queues import QueueStore
from backburner.ports.store.schedules import ScheduleStore
from backburner.ports.store.steps import StepStore
from backburner.ports.store.translations import TranslationStore
from backburner.ports.store.usage import UsageStore
from backburner.ports.store.waits import WaitStore
from backburner.ports.store.workers import WorkerStore


class Store(
    JobStore,
    WorkerStore,
    QueueStore,
    ScheduleStore,
    FlowStore,
    BatchStore,
    EventLog,
    MaintenanceStore,
    KeyStore,
    EndpointStore,
    UsageStore,
    ActivityStore,
    ForecastStore,
    BudgetStore,
    LaneStore,
    DeadLetterExportStore,
    AppBlobStore,
    ErasureStore,
    TranslationStore,
    StepStore,
    WaitStore,
    Protocol,
):
    """All parts of a store."""

    async def open(self) -> None:
        """Connect; raise `ConfigurationError` if that is impossible."""
        ...

    async def close(self) -> None:
        """Finish pending work and disconnect."""
        ...

    async def ping(self) -> None:
        """Raise `StoreUnavailable` unless the store can be written."""
        ...

    async def version(self, history: History = ...) -> str | None:
        """
        Return the revision of the schema, `None` for none, whether or not it is open.

        By default of the engine's schema, with a `history` of an application's.
        """
        ...

    async def migrate(self, history: History = ...) -> tuple[str | None, str | None]:
        """
        Bring the schema up to date, whether or not it is open; return before and after.

        Concurrent calls wait for each other. A revision that fails leaves nothing
        behind, and its error is raised.
        """
        ...

    def examine(self, clock: Clock) -> AsyncIterator[Finding]:
        """Check the database of a store that is not open, without changing it."""
        ...
