"""Capabilities: named, typed units of work, looked up by name."""

import difflib
import inspect
import types
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import TypeAdapter

from backburner.domain.errors import ConfigurationError, UnknownCapability
from backburner.domain.guard import Policy
from backburner.domain.jobs.outcome import Cancel, Failed, Snooze
from backburner.domain.jobs.retry import RetryPolicy
from backburner.domain.lanes.lane import Lane
from backburner.domain.queues.queue import MAX_NAME, Queue
from backburner.engine.flow import Chain
from backburner.engine.run.context import Context

In = TypeVar("In")
Out = TypeVar("Out")

Handler = Callable[[Context, In], Awaitable[Out | Snooze | Cancel | Failed]]

DEFAULT_QUEUE = "default"
DEFAULT_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, eq=False)
class Capability(Generic[In, Out]):
    """A named, typed unit of work: its handler and its policies."""

    name: str
    handler: Handler[In, Out]
    queue: str
    timeout: timedelta
    retry: RetryPolicy
    description: str
    tokens: int | Callable[[In], int] | None
    """The expected tokens of a job, input and output together."""
    model: str | None
    """The model that it is expected to call."""
    guard: Policy
    """What to do with an input that looks like a prompt injection."""
    patience: timedelta | None
    """The maximum total wait of a job for rate limits; `None`: as configured."""
    input: TypeAdapter[In] = field(repr=False)
    output: TypeAdapter[Out] = field(repr=False)

    def __post_init__(self) -> None:
        for field_name, is_good, must_be in _RULES:
            value = getattr(self, field_name)
            if not is_good(value):
                raise ConfigurationError(
                    f"capability {self.name!r}: `{field_name}` must be {must_be}, "
                    f"not {value!r}"
                )

    @property
    def origin(self) -> str:
        """The module and name of its handler."""
        return f"{self.handler.__module__}.{self.handler.__qualname__}"

    async def run(self, ctx: Context, value: In) -> Out | Snooze | Cancel | Failed:
        """Call the handler directly, for example in a test."""
        return await self.handler(ctx, value)

    def __rshift__(self, other: "Capability[Any, Any] | Chain") -> Chain:
        """Return a chain, `extract >> chunk >> embed`, in execution order."""
        return Chain((self,)) >> other


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()


def _is_span(value: object) -> bool:
    return isinstance(value, timedelta) and value > timedelta()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_SPAN: Final = "a positive timedelta, for example timedelta(seconds=30)"
_RULES: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("name", lambda value: isinstance(value, str) and value != "", "a name"),
    ("queue", _is_name, f"a name of 1 to {MAX_NAME} printable characters"),
    ("timeout", _is_span, _SPAN),
    ("retry", lambda value: isinstance(value, RetryPolicy), "a RetryPolicy"),
    (
        "tokens",
        lambda value: value is None or callable(value) or _is_count(value),
        "a whole number or a function of the input",
    ),
    ("model", lambda value: value is None or isinstance(value, str), "a name"),
    ("patience", lambda value: value is None or _is_span(value), _SPAN),
)
"""Conditions for fields, so that an error is raised where the mistake was made."""


def capability(  # noqa: PLR0913 - independent policies
    name: str,
    *,
    queue: str = DEFAULT_QUEUE,
    timeout: timedelta = DEFAULT_TIMEOUT,
    max_attempts: int = 3,
    retry: RetryPolicy | None = None,
    tokens: int | Callable[[Any], int] | None = None,
    model: str | None = None,
    guard: Policy | Literal["off", "flag", "block"] = Policy.OFF,
    patience: timedelta | None = None,
) -> Callable[[Handler[In, Out]], Capability[In, Out]]:
    """
    Make a capability of an async function of `(ctx, input)`.

    The types of the input and the result are read from the annotations. `retry`
    replaces `max_attempts`. `tokens` is the expected usage of a job and `model` the
    model it is expected to call: budgets, fair shares and quotes use them. `guard` says
    what happens to inputs that look like a prompt injection. `patience` limits the
    total wait for rate limits, which uses no attempt (default:
    BACKBURNER_THROTTLE_LIMIT_HOURS).
    """
    if callable(name):
        example = getattr(name, "__name__", "name")
        raise ConfigurationError(
            f'a capability needs a name: write `@capability("{example}")` '
            "instead of `@capability`"
        )
    if not _is_count(max_attempts) or not max_attempts:
        raise ConfigurationError(
            f"capability {name!r}: `max_attempts` must be a whole number from 1, "
            f"not {max_attempts!r}"
        )

    def decorate(handler: Handler[In, Out]) -> Capability[In, Out]:
        takes, gives = _annotations(name, handler)
        return Capability(
            name=name,
            handler=handler,
            queue=queue,
            timeout=timeout,
            retry=retry or RetryPolicy(max_attempts=max_attempts),
            description=inspect.getdoc(handler) or "",
            tokens=tokens,
            model=model,
            guard=_policy(name, guard),
            patience=patience,
            input=TypeAdapter(takes),
            output=TypeAdapter(gives),
        )

    return decorate


def _policy(name: str, text: str) -> Policy:
    try:
        return Policy(text)
    except ValueError:
        known = ", ".join(repr(str(policy)) for policy in Policy)
        raise ConfigurationError(
            f"capability {name!r}: `guard` must be one of {known}"
        ) from None


class Registry:
    """The capabilities of a process, by name."""

    def __init__(self, capabilities: Iterable[Capability[Any, Any]] = ()) -> None:
        self._by_name: dict[str, Capability[Any, Any]] = {}
        self._own: dict[str, Capability[Any, Any]] = {}
        self._without_queue: set[str] = set()
        self.policies: dict[str, Queue] = {}
        self.lanes: dict[str, Lane] = {}
        self.counted_queue: str | None = None
        """The queue whose counts `/metrics` shows as JSON, if any."""
        self.withheld: set[str] = set()
        """Queues that no worker of this process takes jobs from."""
        self.retries: dict[str, RetryPolicy] = {}
        """Retry policies by capability that override its own."""
        for found in capabilities:
            self.add(found)

    def add(self, found: Capability[Any, Any]) -> None:
        """Register a capability; its name must be new."""
        other = self._by_name.setdefault(found.name, found)
        if other is not found:
            raise ConfigurationError(
                f"two capabilities are named {found.name!r}: "
                f"{other.origin} and {found.origin}; rename one of them"
            )

    def own(self, found: Capability[Any, Any], *, has_queue: bool = True) -> None:
        """
        Register an internal capability, which callers cannot submit.

        Without `has_queue`, its jobs are in queues that workers serve anyway.
        """
        other = self._by_name.get(found.name)
        if other is not None:
            raise ConfigurationError(
                f"{found.name!r} is the name of an internal capability "
                f"({found.origin}); rename {other.origin}"
            )
        self._own[found.name] = found
        if not has_queue:
            self._without_queue.add(found.name)

    def retry_of(self, found: Capability[Any, Any]) -> RetryPolicy:
        """Return the retry policy of a capability."""
        return self.retries.get(found.name, found.retry)

    def limit(self, queue: Queue) -> None:
        """Declare the limits of a queue; a queue is declared once."""
        if self.policies.setdefault(queue.name, queue) is not queue:
            raise ConfigurationError(f"queue {queue.name!r} is declared twice")

    def keeps(self, queue: str) -> bool:
        """Say whether a queue has its own retention policy."""
        policy = self.policies.get(queue)
        return policy is not None and policy.keep is not None

    def pace(self, lane: Lane) -> None:
        """Declare a lane; a lane is declared once."""
        if self.lanes.setdefault(lane.name, lane) is not lane:
            raise ConfigurationError(f"lane {lane.name!r} is declared twice")

    def get(self, name: str) -> Capability[Any, Any] | None:
        """Return a capability, or `None`."""
        return self._by_name.get(name) or self._own.get(name)

    def offers(self, name: str) -> bool:
        """Return whether callers can submit a capability."""
        return name in self._by_name

    def find(self, name: str) -> Capability[Any, Any]:
        """Return a capability; the error for an unknown name suggests similar ones."""
        found = self._by_name.get(name)
        if found is not None:
            return found
        near = difflib.get_close_matches(name, self._by_name, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UnknownCapability(
            f"no capability is named {name[:100]!r}{hint}",
            suggestion=near[0] if near else None,
        )

    def __iter__(self) -> Iterator[Capability[Any, Any]]:
        return iter(sorted(self._by_name.values(), key=lambda found: found.name))

    def queues(self) -> list[str]:
        """Return the queues that callers may name."""
        return sorted({found.queue for found in self._by_name.values()})

    def served(self) -> list[str]:
        """Return the queues that capabilities use, internal ones included."""
        return sorted({*self.queues(), *self._own_queues()})

    def _own_queues(self) -> Iterator[str]:
        for name, found in self._own.items():
            if name not in self._without_queue:
                yield found.queue

    def check_queues(self, chosen: Collection[str]) -> list[str]:
        """
        Return the chosen queues that no capability uses and nobody declared.

        Refuse them if all are such queues: the worker would wait for ever.
        """
        known = {*self.served(), *self.policies, *self.withheld}
        unknown = [queue for queue in chosen if queue not in known]
        if unknown and len(unknown) == len(chosen):
            raise ConfigurationError(
                f"no capability uses the queue {unknown[0]!r}; "
                f"known: {', '.join(sorted(known))}; if jobs name it when they are "
                f"submitted, declare it: App(…, queues=[Queue({unknown[0]!r})])"
            )
        return unknown

    def claimed(self, chosen: Iterable[str] = ()) -> list[str]:
        """Return the queues that a worker claims from: the chosen ones, or all."""
        named = list(chosen) or self.served()
        return [queue for queue in named if queue not in self.withheld]


def _annotations(name: str, handler: Callable[..., Any]) -> tuple[Any, Any]:
    if not inspect.iscoroutinefunction(handler):
        raise ConfigurationError(
            f"capability {name!r} must be an `async def`; in it, call blocking code "
            "with `await asyncio.to_thread(…)`"
        )
    hints = get_type_hints(handler)
    parameters = list(inspect.signature(handler).parameters)
    if len(parameters) != 2 or parameters[1] not in hints or "return" not in hints:  # noqa: PLR2004
        raise ConfigurationError(
            f"capability {name!r} must read "
            "`async def f(ctx: Context, value: Input) -> Output`, all annotated"
        )
    return hints[parameters[1]], _without_answers(hints["return"])


def _without_answers(annotation: Any) -> Any:
    if get_origin(annotation) not in {Union, types.UnionType}:
        return annotation
    kept = [a for a in get_args(annotation) if a not in {Snooze, Cancel, Failed}]
    return Union[tuple(kept)] if kept else type(None)  # noqa: UP007 - built at run time
