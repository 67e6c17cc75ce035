"""Engine events that an application translates into its own events. Pure."""

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from backburner.domain.errors import ConfigurationError
from backburner.domain.events.event import LEADS_TO, PROGRESS, QUEUE_THROTTLED, Event
from backburner.domain.jobs.job import Owner

TRANSLATABLE: Final = frozenset({*LEADS_TO, PROGRESS, QUEUE_THROTTLED})


class EngineEvent(NamedTuple):
    """An event of one of the application's jobs or queues."""

    event: Event
    queue: str
    owner: Owner | None = None
    """The owner of the job; `None` for an event of a queue."""
    capability: str | None = None
    tags: tuple[str, ...] = ()
    flow_id: str | None = None
    step: str | None = None
    batch_id: str | None = None

    @property
    def type(self) -> str:
        """The event type, such as `job.succeeded`."""
        return self.event.type

    @property
    def job_id(self) -> str | None:
        """The id of the job; `None` for an event of a queue."""
        return None if self.owner is None else self.event.subject


class Translation(NamedTuple):
    """The event types that an application translates, and the function that does it."""

    types: Collection[str]
    translate: Callable[[Any, EngineEvent], None]
    """
    Called with a transaction, which can `publish` and write, and the event.

    It must be a plain function. Its effects are committed once for each event, over all
    processes. If it raises, nothing is committed, the event is retried later, and later
    events wait. So raise only if a retry can help.
    """


class Selection(NamedTuple):
    """Selects the events that an application translates."""

    types: Collection[str]
    capabilities: Collection[str]
    queues: Collection[str]


class Untranslated(NamedTuple):
    """Events after an application's mark, and how far the log was read."""

    mark: int
    """The mark from which the log was read."""
    events: list[EngineEvent]
    upto: int
    is_last: bool
    """Whether the end of the log was reached."""


def check_types(application: str, types: Collection[str]) -> None:
    """Raise `ConfigurationError` if a type cannot be translated."""
    unknown = sorted({*types} - TRANSLATABLE)
    if unknown or not types:
        named = ", ".join(unknown) or "nothing"
        raise ConfigurationError(
            f"application {application!r} cannot translate {named}: "
            f"use some of {', '.join(sorted(TRANSLATABLE))}"
        )
