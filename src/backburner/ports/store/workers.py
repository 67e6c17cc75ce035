"""Workers: which ones are alive, and their leases."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from backburner.domain.jobs.job import Instant, Job


class WorkerLost(Exception):
    """The worker was declared dead; other workers may run its jobs."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a worker reports about itself with each heartbeat."""

    running: int
    """How many jobs it runs."""
    lag_ms: int
    """How late its event loop ran at worst in the last seconds, or is now."""
    memory: int | None
    """Bytes of its process that are in memory; `None` where the system does not say."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as other processes see it."""

    id: str
    host: str
    pid: int
    slots: int
    queues: tuple[str, ...]
    started_at: Instant
    draining: bool = False
    """Whether it finishes its jobs and claims no others."""
    vitals: Vitals | None = None
    """`None` before its first heartbeat, and from a release that reports none."""


class Heart(Protocol):
    """Sends heartbeats for one worker from its own thread, over its own connection."""

    def beat(self, worker: str, vitals: Vitals) -> bool:
        """Renew the worker's lease; `False` if it was declared dead."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class WorkerStore(Protocol):
    """Live workers and their leases, by the store's clock."""

    async def enlist(self, worker: WorkerInfo) -> None:
        """Register a worker; its lease begins now."""
        ...

    async def dismiss(self, worker: str) -> None:
        """Remove a worker that stops."""
        ...

    def heart(self) -> Heart:
        """Return a heart, to be used by one thread."""
        ...

    async def orphans(self, *, lease: timedelta, limit: int) -> Sequence[Job]:
        """
        Declare silent workers dead; return running jobs that have no worker.

        Their inputs are left out, as in `MaintenanceStore.jobs`.
        """
        ...

    async def held(self, worker: str) -> Sequence[tuple[int, str]]:
        """Return the `(seq, token)` of each job the worker still holds."""
        ...

    async def drain(self, worker: str, *, draining: bool) -> bool:
        """
        Drain or resume a worker; `False` if it is not enlisted.

        The worker reads this with `is_draining`; the setting is lost with its lease.
        """
        ...

    async def is_draining(self, worker: str) -> bool | None:
        """Return whether a worker must claim nothing; `None` if it is not enlisted."""
        ...

    async def workers(self) -> Sequence[WorkerInfo]:
        """Return the enlisted workers."""
        ...
