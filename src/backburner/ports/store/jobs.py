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
from backburner.ports.store.keys import AuditEntry
from backburner.ports.store.transactions import Connection, Tx

T = TypeVar("T")


class Settlement(NamedTuple):
    """The change that ends a running job or puts it back."""

    seq: int
    token: str
    change: Change
    body: Callable[[Tx], None] | None = None
    """Runs in the same transaction; if it raises, its writes are rolled back …"""
    otherwise: Callable[[Exception], Change | None] | None = None
    """… and this returns the job's change instead; `None` leaves the job as it is."""
    consequences: Consequences | None = None
    """
    The consequences of the job's end, applied in the same transaction after `body`.
    """
    usage: Sequence[Usage] = ()
    """All usage of the run, recorded in the same transaction, each call once."""
    epoch: int = 0
    """The run: the number of its `job.started` event."""


class Move(NamedTuple):
    """A change of a job that is not running, applied only if its state is unchanged."""

    seq: int
    state: JobState
    generation: int
    change: Change
    consequences: Consequences | None = None
    """The consequences of the job's end, applied in the same transaction."""


class Amendment(NamedTuple):
    """A caller's change of a job that has not started."""

    priority: int | None = None
    change: Change | None = None
    """The change of its start time: a move between `scheduled` and `queued`."""


class ClaimRequest(NamedTuple):
    """How many jobs of a queue a worker requests."""

    queue: str
    limit: int
    extra: int = 0
    """How many more jobs to take if other queues leave slots unused."""


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
        Store jobs, durably; all or none.

        A job whose owner used its idempotency key within the last day is not stored
        again: the result names the first job. Raises `IdempotencyConflict` if the body
        differs.
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
        Claim queued jobs in order of priority, rank and id.

        A claimed step includes the results of its prerequisites. Slots that a queue
        leaves unused go to the other queues, each up to its `extra`, so that all queues
        together return as many jobs as the limits add up to, if they have them.

        Not durable: if the machine crashes, the jobs run again. Raises `WorkerLost`,
        and claims nothing, if the worker is not enlisted. For a queue with limits, all
        workers together get no more than the limits allow, by the store's clock; for a
        paused queue nothing.
        """
        ...

    async def settle(
        self, settlements: Sequence[Settlement]
    ) -> Sequence[Change | None]:
        """
        Apply changes to running jobs, durably; return the applied change for each.

        `None`: the token is no longer valid, and nothing was written.
        """
        ...

    async def move(self, moves: Sequence[Move]) -> Sequence[bool]:
        """Apply changes to jobs that are not running, durably; return which applied."""
        ...

    async def amend(
        self, job: Job, amendment: Amendment, entries: Sequence[AuditEntry] = ()
    ) -> bool:
        """
        Change a job, durably; `False`, and nothing is written, if it has changed.

        One event records it in the same transaction: that of the move, or
        `job.changed`. `entries` are added to the audit log with it.
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
        Run `body` in its own transaction and return its result.

        With a `claim`, the row of its job is locked first; unless the job still runs
        under the claim's token, `ClaimLost` is raised and the body is not run. A body
        that takes longer than `seconds` is interrupted at its statement, and rolled
        back in any case: `TransactionTooLong`. The body may be run more than once; only
        one of its runs is committed.
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
