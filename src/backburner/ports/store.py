"""
The store: the source of truth, in four small contracts that one adapter fulfils.

Every method takes or returns lists. Concurrent calls of one process may share a
commit, but no caller sees another's failure. A method returns after its commit; what
it wrote then survives the process, and, where it says *durable*, the machine.
`StoreUnavailable` means that nothing was promised: the commit may or may not have
happened, and asking again is safe.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from backburner.domain.batch import Batch, Counts, Members, NewBatch
from backburner.domain.budget import Balance, Charge, Reservation
from backburner.domain.event import Event
from backburner.domain.flow import Edge, Flow, NewFlow, NewStep
from backburner.domain.job import (
    Claim,
    Instant,
    Job,
    JobState,
    Link,
    NewJob,
    Submitted,
    Visibility,
)
from backburner.domain.publication import Publication
from backburner.domain.queue import Queue, QueueState, Throttling, Totals
from backburner.domain.quote import Past
from backburner.domain.schedule import ScheduleState
from backburner.domain.transitions import Change
from backburner.domain.usage import Booking, Spent, Usage
from backburner.ports.app_blobs import AppBlobStore
from backburner.ports.budgets import Ask, BudgetStore
from backburner.ports.burials import BurialStore
from backburner.ports.clock import Clock
from backburner.ports.endpoints import EndpointStore
from backburner.ports.erasure import ErasureStore
from backburner.ports.finding import Finding
from backburner.ports.history import History
from backburner.ports.keys import KeyStore
from backburner.ports.lanes import LaneStore
from backburner.ports.steps import StepStore
from backburner.ports.translations import TranslationStore
from backburner.ports.waits import WaitStore

T = TypeVar("T")


class Connection(Protocol):
    """What a transaction body may do with its database: a `sqlalchemy.Connection`."""

    def execute(self, statement: Any, parameters: Any = None, /) -> Any:
        """Run an SQLAlchemy statement inside the transaction."""
        ...


class Tx(Protocol):
    """A transaction under way. Plain calls only: nobody can await inside one."""

    @property
    def connection(self) -> Connection:
        """The database, for a room's own tables."""
        ...

    def submit(self, jobs: Sequence[NewJob]) -> Sequence[Submitted]:
        """Store jobs in this transaction."""
        ...

    def extend(self, flow: int, steps: Sequence[NewStep]) -> None:
        """Add steps to the flow of the step that is being settled."""
        ...

    def submit_flows(self, flows: Sequence[NewFlow]) -> Sequence[Submitted]:
        """Store flows with their steps in this transaction."""
        ...

    def open_batch(self, batch: NewBatch, members: Members) -> Submitted:
        """Store a batch and its first members in this transaction."""
        ...

    def find_batch(self, batch_id: str) -> Batch | None:
        """Return a batch as this transaction sees it."""
        ...

    def fill_batch(
        self, batch: int, members: Members, *, seal: bool
    ) -> Sequence[Submitted]:
        """
        Add to a batch in this transaction, as `Batches.fill_batch` does.

        If another transaction holds the batch, this one may be rolled back and begun
        anew with the batch's lock, since its locks have an order.
        """
        ...

    def reserve_hold(self, ask: Ask) -> Reservation:
        """Hold without a job, once for an id, or raise `BudgetExhausted`."""
        ...

    def settle_hold(self, hold_id: str, tokens: int) -> bool:
        """
        Book what was used against a hold, once; say if it was not done before.

        What was released or freed itself by then is booked as overdraft, in the window
        of the hold. `False`, too, if there is none.
        """
        ...

    def release_hold(self, hold_id: str) -> bool:
        """Free a hold that is not settled; say if anything was held."""
        ...

    def publish(self, events: Sequence[Publication]) -> None:
        """Store events of applications in this transaction."""
        ...

    def has_signal(self, job: int, names: Sequence[str]) -> bool:
        """Say whether one of these waits of a job was signalled."""
        ...

    def advance(self, application: str, mark: int, upto: int) -> bool:
        """Move an application's mark in the event log; `False` if another did."""
        ...


class Settlement(NamedTuple):
    """How one running job ends or is put back."""

    seq: int
    token: str
    change: Change
    body: Callable[[Tx], None] | None = None
    """Runs in the same transaction; if it raises, nothing of it is kept …"""
    otherwise: Callable[[Exception], Change | None] | None = None
    """… and this says what becomes of the job instead; `None`: it stays as it is."""
    link: Link | None = None
    """What the job's end means to others; done in the same transaction, after that."""
    usage: Sequence[Usage] = ()
    """All that its run used of models; booked in the same transaction, each once."""
    epoch: int = 0
    """The run: the number of its `job.started`."""


class Move(NamedTuple):
    """A change of a job that is not running: made only if it is still as it was."""

    seq: int
    state: JobState
    generation: int
    change: Change
    link: Link | None = None
    """What the job's end means to others; done in the same transaction."""


class Want(NamedTuple):
    """How many jobs of a queue a worker would take."""

    queue: str
    limit: int


class JobStore(Protocol):
    """The jobs themselves."""

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
        self, worker: str, token: str, wants: Sequence[Want], *, now: Instant
    ) -> Sequence[Claim]:
        """
        Take queued jobs in order of priority, rank and id: nobody else gets them.

        A step comes with what its prerequisites came to.

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
        Apply changes to running jobs, durable; return what was applied, each.

        `None`: the token is not the job's any more, and nothing was written.
        """
        ...

    async def move(self, moves: Sequence[Move]) -> Sequence[bool]:
        """Apply changes to jobs that are not running, durable; say which held."""
        ...

    async def find(self, ids: Sequence[str]) -> Sequence[Job]:
        """Return those of the jobs that exist, in any order."""
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
        Do something that blocks, such as writing a file, and return what it returns.

        It is called within a body of `transact`, `settle` or `finish_batch`. The event
        loop goes on meanwhile. Outside of a body it does the work at once.
        """
        ...

    async def snapshot(self, body: Callable[[Connection], T]) -> T:
        """
        Run `body` over what is committed now and return what it returns.

        All its statements see the same; one that writes is refused. It keeps no writer
        waiting.
        """
        ...


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


class Heart(Protocol):
    """Beats for one worker from a thread of its own, over its own connection."""

    def beat(self, worker: str) -> bool:
        """Renew the worker's lease; `False` if it was declared dead."""
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...


class Roster(Protocol):
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

    async def workers(self) -> Sequence[WorkerInfo]:
        """Return who is enlisted."""
        ...


class Queues(Protocol):
    """What each queue allows."""

    async def declare(self, queues: Sequence[Queue]) -> None:
        """Store policies in place of those these queues had; pauses stay."""
        ...

    async def pause(self, queue: str, *, paused: bool) -> None:
        """Have nothing of a queue claimed, or let it go on; what runs goes on."""
        ...

    async def queues(self) -> Sequence[QueueState]:
        """Return the queues that have a policy or were paused, by name."""
        ...

    async def totals(self) -> Mapping[str, Totals]:
        """Return how often jobs of each queue ended, also of deleted ones."""
        ...

    async def compact_totals(self, *, limit: int) -> int:
        """Replace rows of the totals by their sums; return how many fewer there are."""
        ...

    async def throttlings(self) -> Sequence[Throttling]:
        """Return windows that closed while jobs waited; each is told to one caller."""
        ...


class Firing(NamedTuple):
    """Ticks of a schedule that fire together, and what comes next."""

    name: str
    expected: Instant
    """The `next_at` that the schedule must still have."""
    next_at: Instant
    last_at: Instant | None
    jobs: Sequence[NewJob]


class Timetable(Protocol):
    """What happens again and again."""

    async def plan(self, schedules: Sequence[ScheduleState]) -> None:
        """Store schedules; one whose times are the same keeps its next tick."""
        ...

    async def schedules(self) -> tuple[Instant, Sequence[ScheduleState]]:
        """Return the store's time and the schedules, by name."""
        ...

    async def fire(self, firing: Firing) -> bool:
        """Store the jobs and advance the schedule, durable; `False` if another did."""
        ...


class GroupFilter(NamedTuple):
    """Which of an owner's flows or batches to list."""

    owner: Visibility
    state: str | None = None
    tag: str | None = None
    batch: int | None = None
    """Flows that are members of this batch."""


class Step(NamedTuple):
    """A step of a flow: its job, without input and output, and what it waits for."""

    job: Job
    needs: Sequence[Edge]


class Flows(Protocol):
    """Jobs that wait for jobs."""

    async def submit_flows(self, flows: Sequence[NewFlow]) -> Sequence[Submitted]:
        """Store flows with their steps, durable; all or none, as `submit` does."""
        ...

    async def find_flows(self, ids: Sequence[str]) -> Sequence[Flow]:
        """Return those of the flows that exist, in any order."""
        ...

    async def flows(
        self, where: GroupFilter, *, before: int | None, limit: int
    ) -> Sequence[Flow]:
        """Return flows, newest first, with `seq` below `before`."""
        ...

    async def steps(self, flow: int) -> Sequence[Step]:
        """Return a flow's steps, each after what it needs."""
        ...

    async def reopen(self, moves: Sequence[Move]) -> Sequence[bool]:
        """
        Retry failed jobs of flows and batches, durable; say which held.

        Steps that were cancelled because of them wait again, and what was over by
        then goes on in its next generation.
        """
        ...

    async def cancel_flow(self, flow: int, change: Change) -> int:
        """End whatever of a flow is not over yet, durable; return how many steps."""
        ...


class Batches(Protocol):
    """Jobs and flows that are counted and end together."""

    async def open_batch(self, batch: NewBatch, members: Members) -> Submitted:
        """Store a batch and its first members, durable; all or none."""
        ...

    async def fill_batch(
        self, batch: int, members: Members, *, seal: bool
    ) -> Sequence[Submitted]:
        """
        Add to a batch, durable; return what became of each member.

        `IllegalTransition` if it takes no more. Members whose idempotency keys are
        known are there already: a repeat of the last filling is no error.
        """
        ...

    async def find_batches(self, ids: Sequence[str]) -> Sequence[Batch]:
        """Return those of the batches that exist, in any order."""
        ...

    async def batches(
        self, where: GroupFilter, *, before: int | None, limit: int
    ) -> Sequence[Batch]:
        """Return batches, newest first, with `seq` below `before`."""
        ...

    async def count_batch(self, batch: int) -> Counts:
        """Count a batch's members by state."""
        ...

    async def cancel_batch(self, batch: int, change: Change) -> int:
        """End whatever of a batch is not over, and take no more; return how many."""
        ...

    async def batches_over(self, *, after: int = 0, limit: int) -> Sequence[int]:
        """
        Return open batches that take no more and have nothing left to do.

        They come by their keys, from the first one after `after`.
        """
        ...

    async def tell_batch(self, batch: int, *, now: Instant) -> bool:
        """Note a batch's progress, at most once a second; say whether it was."""
        ...

    async def finish_batch(
        self,
        batch: int,
        then: Callable[[Batch, Counts], Sequence[NewJob]],
        *,
        now: Instant,
    ) -> bool:
        """End a batch if it is over, with the jobs that follow; once a generation."""
        ...


class Note(NamedTuple):
    """What a running job's handler says: how far it is, or text."""

    seq: int
    token: str
    n: int
    """The number that its event is to get."""
    at: Instant
    type: str
    data: str


class Topic(NamedTuple):
    """What of an owner's events is wanted: all, or those about one thing."""

    flow: int | None = None
    """A flow's own events and those of its steps."""
    batch: int | None = None
    """A batch's own events; not those of its members, which may be many."""
    tag: str | None = None
    """The events of jobs with this tag."""
    name: str | None = None
    """What applications published under this name."""
    queues: bool = False
    """With those of queues, which belong to nobody."""

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return not any(thing is not None for thing in self[:4])


EVERYTHING = Topic()


class EventPage(NamedTuple):
    """Some events of a stream, in order, and how far the log was looked through."""

    events: Sequence[Event]
    upto: int
    """Nothing is left out up to this number: the next page begins after it."""
    is_last: bool
    """Whether that is all there is by now."""


class EventLog(Protocol):
    """What happened, in order."""

    async def report(self, notes: Sequence[Note]) -> None:
        """
        Tell what handlers say, on jobs still held by the token; others are skipped.

        A note whose number is not the job's next is skipped too, so that a report
        may be repeated as it was. Durable: were a note lost after its answer, all
        later ones of its run would be skipped. Progress is noted on the job.
        """
        ...

    async def history(self, job_id: str, *, after: int, limit: int) -> Sequence[Event]:
        """Return a job's events with `n` above `after`, in order."""
        ...

    async def changes(
        self, job_id: str, *, after: int = 0, limit: int
    ) -> Sequence[Event]:
        """Return a job's events above `after`, without progress and text, in order."""
        ...

    async def news(
        self, cursors: Sequence[tuple[int, int]], *, limit: int
    ) -> Sequence[Event]:
        """Return events newer than `(job seq, n)`, for many jobs at once, in order."""
        ...

    async def stream(
        self, owner: Visibility, *, after: int, limit: int, topic: Topic = EVERYTHING
    ) -> EventPage:
        """
        Return an owner's events with `seq` above `after`, in order.

        A page may be short, or empty, before the last: each call looks at a bounded
        number of events. If events of a topic were deleted for their age after the
        cursor, a page of it begins with an event `reset`, whose `seq` is the last of
        those.
        """
        ...

    async def forget_published(
        self, *, before: Instant, now: Instant, limit: int
    ) -> int:
        """Delete applications' events of before a time; return how many."""
        ...

    async def fill_event_owners(self, *, limit: int) -> int:
        """Note the owner of events that an earlier release wrote; return how many."""
        ...

    async def last_of(self, topic: Topic) -> int:
        """Return the `seq` of the latest event of a flow or batch itself, or 0."""
        ...

    async def latest(self) -> int:
        """
        Return the highest `seq` so far.

        A `stream` asked for after this returned has all up to there: no event appears
        below it later.
        """
        ...


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list. Unset fields do not restrict."""

    owner: Visibility | None = None
    state: JobState | None = None
    states: frozenset[JobState] = frozenset()
    """Any of these states, if there are some; instead of `state`."""
    capability: str | None = None
    queue: str | None = None
    tag: str | None = None
    fingerprint: str | None = None
    since: Instant | None = None
    """Submitted at this time or later."""
    until: Instant | None = None
    """Submitted before this time."""
    flow: int | None = None
    batch: int | None = None
    oldest_first: bool = False
    """Whether the oldest come first; a cursor is then the number to go on after."""


class FailureGroup(NamedTuple):
    """Dead letters that failed alike."""

    fingerprint: str
    capability: str
    code: str
    size: int
    first_at: Instant
    last_at: Instant
    sample_id: str


class Retention(NamedTuple):
    """How long a finished job is kept."""

    succeeded: timedelta = timedelta(days=7)
    failed: timedelta = timedelta(days=14)
    cancelled: timedelta = timedelta(days=7)


class Keeper(Protocol):
    """Lists and upkeep."""

    async def read_clock(self) -> Instant:
        """Return the store's time, by which all its processes go."""
        ...

    async def jobs(
        self, where: JobFilter, *, before: int | None, limit: int
    ) -> Sequence[Job]:
        """
        Return jobs, newest first, with `seq` below `before`.

        With `oldest_first`, the oldest first, with `seq` above it. They come without
        their inputs and outputs, which `find` returns: a page of large jobs stays
        small.
        """
        ...

    async def count(self, where: JobFilter, *, most: int | None = None) -> int:
        """Return how many jobs match; with `most`, no more are counted than that."""
        ...

    async def failures(
        self, owner: Visibility, *, limit: int
    ) -> Sequence[FailureGroup]:
        """Return an owner's dead letters by fingerprint, the latest first."""
        ...

    async def depths(self) -> Sequence[tuple[str, JobState, int, Instant | None]]:
        """Count jobs per queue and live state, and say since when the oldest waits."""
        ...

    async def waiting(self, cap: int) -> Mapping[str, int]:
        """Count queued jobs by queue, up to `cap` each; queues without are left out."""
        ...

    async def dead_letters(self) -> int:
        """Count dead letters of all owners; a store may stop at 100,000."""
        ...

    async def promote(self, *, now: Instant, limit: int) -> int:
        """Queue scheduled jobs that are due; return how many."""
        ...

    async def next_due(self) -> Instant | None:
        """Return when the next scheduled job is due."""
        ...

    async def overdue(self, *, now: Instant, limit: int) -> Sequence[Job]:
        """List waiting jobs whose `start_by` or `deadline` is over, as `jobs` does."""
        ...

    async def prune(
        self, *, keep: Retention, now: Instant, limit: int
    ) -> Sequence[str]:
        """Delete finished jobs past their time, with their events; return their ids."""
        ...


class UsageFilter(NamedTuple):
    """Whose calls of models to add up, and of when."""

    tenant: str
    user: str | None = None
    """`None`: of all users of the tenant."""
    since: Instant | None = None
    until: Instant | None = None


class Usages(Protocol):
    """What jobs used of models; kept for longer than the jobs are."""

    async def book(self, bookings: Sequence[Booking]) -> None:
        """
        Note what runs have used so far, durable; what was noted before is left.

        It is noted for a run that has lost its job, too, and marked as late. Of jobs
        that are gone nothing is.
        """
        ...

    async def spent(
        self, seqs: Sequence[int], *, with_late: bool = True
    ) -> Mapping[int, Spent]:
        """Add up what jobs used; those that used nothing are left out."""
        ...

    async def spent_before(self, job: int, *, generation: int, epoch: int) -> Spent:
        """Add up what a job used in a generation, by runs before that of the epoch."""
        ...

    async def sums(
        self, where: UsageFilter, by: str, *, limit: int
    ) -> tuple[Spent, Sequence[tuple[str, Spent]]]:
        """
        Add up calls: all, and by tag, capability, model, user or day.

        The largest come first, days in their order. A job with two tags is in both.
        """
        ...

    async def forget_usage(self, *, before: Instant, limit: int) -> int:
        """Delete calls that were made before a time; return how many."""
        ...


class Outlook(NamedTuple):
    """How a queue stands for a job that is not submitted yet."""

    ahead: int
    """Queued jobs of its priority or a higher one."""
    ages: Sequence[int]
    """How long the queue's running jobs have run, in milliseconds."""
    busy: int
    """How many slots of the workers that serve the queue run something else."""
    past: Sequence[Past]
    """Jobs that ended lately, of any queue."""
    uses: Sequence[tuple[int, int | None]]
    """What jobs of its capability used lately: tokens, and the cost if it is known."""


class Closing(NamedTuple):
    """What is known of a job's end beside what its calls used."""

    text: int
    """How many characters of text its readers got."""
    tokens: int | None
    """What a budget held for it and did not need; `None`: none did."""
    money: int | None
    webhooks: int
    """How many webhooks had told of it before."""


class Prospects(Protocol):
    """What is before a job, and what is left of it."""

    async def outlook(
        self, queue: str, capability: str, priority: int, *, now: Instant
    ) -> Outlook:
        """Look at a queue as one who is about to join it."""
        ...

    async def crowd(self, job: NewJob) -> int:
        """Return how many jobs of a job's share wait in its queue."""
        ...

    async def room(
        self, job: NewJob, *, now: Instant
    ) -> Sequence[tuple[Charge, Balance]]:
        """Return what budgets would hold for a job, and how far they are used."""
        ...

    async def closing(self, job: Job) -> Closing:
        """Return what is known of a cancelled job; asked again, the same."""
        ...


class Store(
    JobStore,
    Roster,
    Queues,
    Timetable,
    Flows,
    Batches,
    EventLog,
    Keeper,
    KeyStore,
    EndpointStore,
    Usages,
    Prospects,
    BudgetStore,
    LaneStore,
    BurialStore,
    AppBlobStore,
    ErasureStore,
    TranslationStore,
    StepStore,
    WaitStore,
    Protocol,
):
    """All of it, and its doors."""

    async def open(self) -> None:
        """Connect; raise `ConfigurationError` if that cannot work."""
        ...

    async def close(self) -> None:
        """Finish what is under way and disconnect."""
        ...

    async def ping(self) -> None:
        """Raise `StoreUnavailable` unless the store can be written."""
        ...

    async def version(self, history: History = ...) -> str | None:
        """
        Return the revision that the schema is at, `None` for none; open or not.

        Without a `history` it is the engine's own schema, else an application's.
        """
        ...

    async def migrate(self, history: History = ...) -> tuple[str | None, str | None]:
        """
        Bring the schema up to date, open or not; return before and after.

        Two processes that do so at once wait for each other. A revision that fails
        leaves nothing behind, and what it raises is raised.
        """
        ...

    def examine(self, clock: Clock) -> AsyncIterator[Finding]:
        """Look at the database of a store that is not open; change nothing in it."""
        ...
