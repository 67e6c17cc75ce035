"""The event log, and what handlers report while they run."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from backburner.domain.events.event import Event
from backburner.domain.jobs.job import Instant, Visibility


class Note(NamedTuple):
    """A report of a running handler: progress or text."""

    seq: int
    token: str
    n: int
    """The number of its event."""
    at: Instant
    type: str
    data: str


class Topic(NamedTuple):
    """Selects events of an owner: all, or those about one subject."""

    flow: int | None = None
    """A flow's own events and those of its steps."""
    batch: int | None = None
    """A batch's own events; not those of its members, which may be many."""
    tag: str | None = None
    """The events of jobs with this tag."""
    name: str | None = None
    """The events that applications published under this topic."""
    queues: bool = False
    """Whether to include events of queues, which have no owner."""


EVERYTHING = Topic()


class EventPage(NamedTuple):
    """Events of a stream, in order, and the position up to which the log was read."""

    events: Sequence[Event]
    upto: int
    """No event up to this number is missing: the next page begins after it."""
    is_last: bool
    """Whether the end of the log was reached."""


class EventLog(Protocol):
    """The event log."""

    async def report(self, notes: Sequence[Note]) -> None:
        """
        Store reports of handlers for jobs that still run under the token.

        A report whose number is not the job's next one is skipped, so that a call can
        be repeated unchanged. Durable: if a report were lost after its answer, all
        later ones of the run would be skipped. Progress is stored on the job, too.
        """
        ...

    async def history(self, job_id: str, *, after: int, limit: int) -> Sequence[Event]:
        """Return a job's events with `n` greater than `after`, in order."""
        ...

    async def changes(
        self, job_id: str, *, after: int = 0, limit: int
    ) -> Sequence[Event]:
        """Return a job's events after `after`, without progress and text, in order."""
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

        A page may be short or empty before the last one: each call reads a bounded
        number of events. If events of a topic after the cursor were deleted by age, a
        page of it begins with an event `reset`, whose `seq` is that of the last deleted
        one.
        """
        ...

    async def forget_published(
        self, *, before: Instant, now: Instant, limit: int
    ) -> int:
        """Delete applications' events older than a time; return how many."""
        ...

    async def fill_event_owners(self, *, limit: int) -> int:
        """Set the owner of events that an earlier release wrote; return how many."""
        ...

    async def last_of(self, topic: Topic) -> int:
        """Return the `seq` of the latest event of a flow or batch itself, or 0."""
        ...

    async def latest(self) -> int:
        """
        Return the highest `seq` so far; it does not go back when events are deleted.

        A later `stream` returns all events up to there: no event appears below it.
        """
        ...
