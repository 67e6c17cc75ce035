"""Events of the engine that an application turns into events of its own. Pure."""

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from backburner.domain.errors import ConfigurationError
from backburner.domain.events.event import LEADS_TO, PROGRESS, QUEUE_THROTTLED, Event
from backburner.domain.jobs.job import Owner

TRANSLATABLE: Final = frozenset({*LEADS_TO, PROGRESS, QUEUE_THROTTLED})


class EngineEvent(NamedTuple):
    """An event of a job of the application, or of one of its queues."""

    event: Event
    queue: str
    owner: Owner | None = None
    """Whose job it is; `None`: a queue's event, which belongs to nobody."""
    capability: str | None = None
    tags: tuple[str, ...] = ()
    flow_id: str | None = None
    step: str | None = None
    batch_id: str | None = None

    @property
    def type(self) -> str:
        """What happened, such as `job.succeeded`."""
        return self.event.type

    @property
    def job_id(self) -> str | None:
        """The id of the job, if it is a job's event."""
        return None if self.owner is None else self.event.subject


class Translation(NamedTuple):
    """Which events an application is told of, and what it does with each."""

    types: Collection[str]
    translate: Callable[[Any, EngineEvent], None]
    """
    Takes the transaction, on which it may `publish` and write, and the event.

    A plain function. What it does commits once for each event, over all processes. If
    it raises, nothing is committed and the event is tried again later; those after it
    wait. So it should raise only if trying again can help.
    """


class Selection(NamedTuple):
    """Which of all events an application translates."""

    types: Collection[str]
    capabilities: Collection[str]
    queues: Collection[str]


class Untranslated(NamedTuple):
    """Events above an application's mark, and how far the log was looked through."""

    mark: int
    """Where the mark was."""
    events: list[EngineEvent]
    upto: int
    is_last: bool
    """Whether that is all there is by now."""


def check_types(application: str, types: Collection[str]) -> None:
    """Raise `ConfigurationError` for a type that cannot be translated."""
    unknown = sorted({*types} - TRANSLATABLE)
    if unknown or not types:
        named = ", ".join(unknown) or "nothing"
        raise ConfigurationError(
            f"application {application!r} translates {named}: "
            f"name some of {', '.join(sorted(TRANSLATABLE))}"
        )
