"""Jobs: submitted, claimed, settled and moved from state to state."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from backburner.domain.costs.usage import Usage
from backburner.domain.jobs.job import (
    Claim,
    Consequences,
    Instant,
    Job,
    JobState,
    NewJob,
    Submitted,
)
from backburner.domain.jobs.transitions import Change
from backburner.ports.store.transactions import Connection, Tx

T = TypeVar("T")


class Settlement(NamedTuple):
    """The change that ends a running job or puts it back."""

    seq: int
    token: str
    change: Change
    body: Callable[[Tx], None] | None = None
    """Runs in the same transaction; if it raises, nothing of it is kept …"""
    otherwise: Callable[[Exception], Change | None] | None = None
    """… and this says what becomes of the job instead; `None`: it stays as it is."""
    consequences: Consequences | None = None
    """What the job's end means to others; done in the same transaction, after that."""
    usage: Sequence[Usage] = ()
    """All that its run used of models; booked in the same transaction, each once."""
    epoch: int = 0
    """The run: the number of its `job.started`."""


class Move(NamedTuple):
    """A change of a job that is not running, applied only if its state is unchanged."""

    seq: int
    state: JobState
    generation: int
    change: Change
    consequences: Consequences | None = None
    """What the job's end means to others; done in the same transaction."""


class Amendment(NamedTuple):
    """What a caller changes of a job that has not started."""

    priority: int | None = None
    change: Change | None = None
    """When it starts: a move between `scheduled` and `queued`."""


class ClaimRequest(NamedTuple):
    """How many jobs of a queue a worker requests."""

    queue: str
    limit: int
    extra: int = 0
    """How many more it would take of slots that other queues leave unused."""


class JobStore(Protocol):
    """Stores jobs and changes their states."""

    applies_in_order: bool
    """
    Whether a claim is applied after all settlements that were sent before it.

    A worker that sends both then holds no more jobs than it has slots, without waiting
    for the settlements' answers.
    """

    async def submit(self, jobs: Sequence[NewJob]) -> Sequence[Submitted]:
        """
        Store jobs, durable; all or none.

        A job whose owner used its idempotency key within the last day is not stored
        again: the answer names the first. `IdempotencyConflict` if the body differs.
        """
        ...

    async def claim(
        self,
        worker: str,
        token: str,
        claim_requests: Sequence[ClaimRequest],
        *,
        now: Instant,
    ) -> Sequence[Claim]:
        """
        Take queued jobs in order of priority, rank and id: nobody else gets them.

        A step comes with what its prerequisites came to. What a queue leaves of its
        limit goes to the other queues, each up to its `extra`, so that all queues
        together give as many jobs as the limits add up to, if they have them.

        Not durable: a claim lost with the machine only means running again. Raises
        `WorkerLost` if the worker is not enlisted, and then takes nothing. Of a queue
        with limits no more are taken than they leave, over all workers together, by
        the store's clock; of a paused one nothing.
        """
        ...

    async def settle(
        self, settlements: Sequence[Settlement]
    ) -> Sequence[Change | None]:
        """
        Apply changes to running jobs, durably; return what was applied for each.

        `None`: the token is no longer the job's, and nothing was written.
        """
        ...

    async def move(self, moves: Sequence[Move]) -> Sequence[bool]:
        """Apply changes to jobs that are not running, durably; return which applied."""
        ...

    async def amend(self, job: Job, amendment: Amendment) -> bool:
        """
        Change a job, durable; `False`, and nothing is written, if it has moved on.

        One event tells of it, in the same transaction: that of the move, or
        `job.changed`.
        """
        ...

    async def find(self, ids: Sequence[str]) -> Sequence[Job]:
        """Return the jobs that exist, in any order."""
        ...

    async def transact(
        self,
        body: Callable[[Tx], T],
        *,
        claim: Claim | None = None,
        seconds: float | None = None,
    ) -> T:
        """
        Run `body` in a transaction of its own and return what it returns.

        With a `claim`, the row of its job is locked first: `ClaimLost` unless the job
        still runs under the claim's token, and then the body is not run. A body that
        takes longer than `seconds` is interrupted at its statement, and is rolled back
        in any case: `TransactionTooLong`. The body may be run more than once; only one
        of its runs is committed.
        """
        ...

    def aside(self, work: Callable[[], T]) -> T:
        """
        Run a blocking function, such as writing a file, and return its result.

        It is called within a body of `transact`, `settle` or `finish_batch`; the event
        loop is not blocked. Outside of a body it runs the function directly.
        """
        ...

    async def snapshot(self, body: Callable[[Connection], T]) -> T:
        """
        Run `body` on a snapshot of committed data and return its result.

        All its statements see the same data; writes are refused. It blocks no writer.
        """
        ...
