"""What an application provides, and what it needs from the process that runs it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from typing import Any, Literal, NamedTuple

from pydantic_settings import BaseSettings

from backburner.domain.ai import NOT_CONFIGURED, Purpose
from backburner.domain.costs.budget import Budget
from backburner.domain.events.translation import Translation
from backburner.domain.jobs.retry import RetryPolicy
from backburner.domain.lanes.lane import Lane
from backburner.domain.queues.queue import Queue
from backburner.engine.maintenance.erasure import EraseRows
from backburner.engine.maintenance.schedule import Schedule
from backburner.engine.observability.app_metrics import AppMetric
from backburner.engine.registry import Capability
from backburner.engine.transaction import Transaction
from backburner.ports.finding import Finding

WorkerPhase = Literal["starting", "failed", "stopping", "stopped"]
Serves = Callable[[Any], AbstractAsyncContextManager[Sequence[Any]]]
"""Takes the open `Backburner` and returns routes, for as long as they are served."""
Uploaded = Callable[[Transaction, str, int], None]
"""Takes a transaction, the id of an upload and the number of bytes."""
ReadsMessage = Callable[[Any, Any], Any]
"""
Takes the open `Backburner` and a request that another program put on a queue.

Returns a prepared flow with an idempotency key, or `None` if the request is not in the
application's own format: then it becomes an ordinary job.
"""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process is started to do."""

    served: frozenset[str] = frozenset()
    """The names of the applications whose routes it serves."""
    works: bool = True
    """Whether it runs jobs."""
    is_keyed: bool = False
    """Whether its callers need an API key."""
    is_dev: bool = False
    """Whether it was started for development, with `--dev`."""


class ModelUse(NamedTuple):
    """A purpose for which an application uses models."""

    purpose: Purpose
    is_required: bool = True
    """Whether a process refuses to start if no provider serves the purpose."""
    code: str = NOT_CONFIGURED
    """The error code of a call without an available provider."""
    fallback: str = ""
    """
    The provider for this purpose of the application if none is configured.

    It also takes precedence over the mock, unless that is set for this purpose.
    """


class Need(NamedTuple):
    """A setting that a process needs to start."""

    settings: tuple[str, ...]
    """
    Field names of the application's settings or of `Settings`.

    One of them must have a value.
    """
    why: str
    """Ends the sentence "NAME is not set: application 'x' needs it …"."""


@dataclass(frozen=True, slots=True)
class App:
    """
    A named set of capabilities, with their limits, lanes, schedules and budgets.

    An application with routes is a service. `serve` and `worker` run the applications
    that are named by `--app` or `BACKBURNER_APPS`; `serve NAME` serves that one.
    """

    name: str
    capabilities: Sequence[Capability[Any, Any]] = ()
    queues: Sequence[Queue] | Callable[[Any], Sequence[Queue]] = ()
    """Its queues' limits, or a function that takes its settings and returns them."""
    schedules: Sequence[Schedule] = ()
    budgets: Sequence[Budget] = ()
    lanes: Sequence[Lane] = ()
    model_lane: Callable[[Any], Lane] | None = None
    """
    Takes its settings and returns a lane for all of its model calls.

    It limits them over all workers and models, in addition to each model's lane.
    """
    retries: Callable[[Any], Mapping[str, RetryPolicy]] | None = None
    """
    Takes its settings and returns retry delays, by the name of the capability.

    They replace the delays of the capability's own policy, not its number of attempts.
    """
    uploaded: Uploaded | None = None
    """
    Called when bytes arrive at a signed URL of this server.

    It is called for the uploads of all applications, and again if a client repeats an
    upload. The client gets its response after the transaction has committed.
    """
    counted_queue: str = ""
    """The queue whose counts `GET /metrics` returns as JSON."""
    serves: Serves | None = None
    own: Sequence[Capability[Any, Any]] = ()
    """Internal capabilities: only the application's code can submit them."""
    messages: Mapping[str, ReadsMessage] = field(default_factory=dict)
    """By queue, a parser for messages of other programs in a format of its own."""
    models: Sequence[ModelUse] = ()
    """The purposes for which its handlers use models."""
    worker_log: Mapping[WorkerPhase, str] = field(default_factory=dict)
    """The messages to log when a worker that runs it starts and stops."""
    needs: Callable[[Setup], Iterable[Need]] | None = None
    """Returns the settings that a process needs to run this application."""
    settings: type[BaseSettings] | None = None
    """
    The model of its own settings: read from the environment and validated at start.

    Handlers and routes get them with `settings_of(Model)`, commands with
    `read_settings(Model)`.
    """
    reaches: Callable[[Any, str], Iterable[str]] | None = None
    """
    Takes its settings and the address at which this process serves it, if it does.

    Returns URLs or hosts to which callbacks may go although they are not public.
    """
    migrations: str = ""
    """
    The package whose folder `versions` contains its Alembic revisions, for example
    `shop.migrations`. They have their own version table.
    """
    tables: Callable[[], Iterable[Any]] | None = None
    """Returns its SQLAlchemy tables, except those that are derived from others."""
    commands: Any = None
    """A `typer.Typer`: its commands become `backburner NAME …`."""
    pages: Traversable | None = None
    """A folder of static files, such as `files("songs") / "pages"`: `/apps/NAME/`."""
    translates: Translation | None = None
    """The events of its jobs and queues that it translates into its own, and how."""
    log_keys: Sequence[str] = ()
    """Keys that its log lines may have in addition to those of the platform."""
    metrics: Sequence[AppMetric] = ()
    """Its metrics, part of `/metrics` of every process that loads it."""
    erase: EraseRows | None = None
    """
    Deletes rows of a user, for `backburner users erase`.

    It takes the transaction, the user and a number of rows, deletes at most that many
    and returns how many. It is called until it returns 0. `erase_rows` does this for a
    table with the columns `tenant` and `user`.
    """
    samples: Callable[[Any], Awaitable[object]] | None = None
    """Takes the open `Backburner` and creates sample data for `demo`; may run again."""
    rebuild: Callable[[Any], object] | None = None
    """
    Takes a connection and rebuilds data that is derived from the tables, such as a
    full-text index, after `backburner move` has copied them. It may run again.
    """

    examine: Callable[[Any], Iterable[Finding]] | None = None
    """
    Takes a database connection and returns the findings for `backburner doctor`.

    It is called when the application's schema is up to date, and must not write.
    """

    def queues_for(self, settings: Any) -> Sequence[Queue]:
        """Return the limits of its queues for these settings."""
        return self.queues(settings) if callable(self.queues) else self.queues
