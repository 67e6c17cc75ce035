"""The data for quotes and receipts."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from backburner.domain.costs.budget import Balance, Charge
from backburner.domain.costs.quote import Past
from backburner.domain.jobs.job import Instant, Job, NewJob


class Outlook(NamedTuple):
    """The state of a queue for a job that is not submitted yet."""

    ahead: int
    """Queued jobs of its priority or a higher one."""
    ages: Sequence[int]
    """How long the queue's running jobs have run, in milliseconds."""
    busy: int
    """Slots of the queue's workers that are occupied by jobs of other queues."""
    past: Sequence[Past]
    """Recently ended jobs, of any queue."""
    uses: Sequence[tuple[int, int | None]]
    """Recent usage of jobs of its capability: tokens, and the cost if known."""


class Closing(NamedTuple):
    """What is known about a job's end, apart from its usage."""

    text: int
    """How many characters of streamed text its readers received."""
    tokens: int | None
    """The amount that a budget held for it and released; `None` without a budget."""
    money: int | None
    webhooks: int
    """The number of webhooks about earlier ends."""


class ForecastStore(Protocol):
    """The data for quotes of new jobs and receipts of cancelled ones."""

    async def outlook(
        self, queue: str, capability: str, priority: int, *, now: Instant
    ) -> Outlook:
        """Return the state of a queue for a new job."""
        ...

    async def crowd(self, job: NewJob) -> int:
        """Return how many jobs of a job's share wait in its queue."""
        ...

    async def room(
        self, job: NewJob, *, now: Instant
    ) -> Sequence[tuple[Charge, Balance]]:
        """Return what budgets would reserve for a job, and how much they have used."""
        ...

    async def closing(self, job: Job) -> Closing:
        """Return what is known about a cancelled job, the same at every call."""
        ...
