"""Workers: which ones are alive, and their leases."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from backburner.domain.jobs.job import Instant, Job


class WorkerLost(Exception):
    """The worker was declared dead; its jobs are others' now."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as others see it."""

    id: str
    host: str
    pid: int
    slots: int
    queues: tuple[str, ...]
    started_at: Instant
    draining: bool = False
    """Whether it finishes its jobs and claims no others."""


class Heart(Protocol):
    """Beats for one worker from a thread of its own, over its own connection."""

    def beat(self, worker: str) -> bool:
        """Renew the worker's lease; `False` if it was declared dead."""
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...


class WorkerStore(Protocol):
    """Who works, and who stopped. Leases are judged by the store's clock."""

    async def enlist(self, worker: WorkerInfo) -> None:
        """Make a worker known; its lease begins now."""
        ...

    async def dismiss(self, worker: str) -> None:
        """Forget a worker that stops by itself."""
        ...

    def heart(self) -> Heart:
        """Return a heart, to be used by one thread."""
        ...

    async def orphans(self, *, lease: timedelta, limit: int) -> Sequence[Job]:
        """
        Declare silent workers dead; return running jobs that have no worker.

        They come without their inputs, as in `Keeper.jobs`.
        """
        ...

    async def held(self, worker: str) -> Sequence[tuple[int, str]]:
        """Return the `(seq, token)` of each job the worker still holds."""
        ...

    async def drain(self, worker: str, *, draining: bool) -> bool:
        """
        Have a worker claim nothing, or go on; `False`: it is not enlisted.

        It learns of it by `is_draining`, and forgets it if it loses its lease.
        """
        ...

    async def is_draining(self, worker: str) -> bool | None:
        """Say whether a worker is to claim nothing; `None`: it is not enlisted."""
        ...

    async def workers(self) -> Sequence[WorkerInfo]:
        """Return who is enlisted."""
        ...
