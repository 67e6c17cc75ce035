"""Capabilities: named, typed units of work, looked up by name."""

import difflib
import inspect
import types
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import (
    Any,
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
from backburner.domain.lane import Lane
from backburner.domain.outcome import Cancel, Failed, Snooze
from backburner.domain.queue import Queue
from backburner.domain.retry import RetryPolicy
from backburner.engine.context import Context
from backburner.engine.flow import Chain

In = TypeVar("In")
Out = TypeVar("Out")

Handler = Callable[[Context, In], Awaitable[Out | Snooze | Cancel | Failed]]

DEFAULT_QUEUE = "default"
DEFAULT_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, eq=False)
class Capability(Generic[In, Out]):
    """What can be asked for, how it is done, and under which policy."""

    name: str
    handler: Handler[In, Out]
    queue: str
    timeout: timedelta
    retry: RetryPolicy
    description: str
    tokens: int | Callable[[In], int] | None
    """What a job is expected to cost, input and output together."""
    model: str | None
    """The model that it is expected to call."""
    guard: Policy
    """What is done about an input that looks like a prompt injection."""
    patience: timedelta | None
    """How long a job may be told to wait in all; `None`: as long as any."""
    input: TypeAdapter[In] = field(repr=False)
    output: TypeAdapter[Out] = field(repr=False)

    async def run(self, ctx: Context, value: In) -> Out | Snooze | Cancel | Failed:
        """Call the handler, as a test would."""
        return await self.handler(ctx, value)

    def __rshift__(self, other: "Capability[Any, Any] | Chain") -> Chain:
        """Write a chain: `extract >> chunk >> embed`, in the order in which it runs."""
        return Chain((self,)) >> other


def capability(  # noqa: PLR0913 - each is a policy of its own
    name: str,
    *,
    queue: str = DEFAULT_QUEUE,
    timeout: timedelta = DEFAULT_TIMEOUT,
    max_attempts: int = 3,
    retry: RetryPolicy | None = None,
    tokens: int | Callable[[In], int] | None = None,
    model: str | None = None,
    guard: Policy | Literal["off", "flag", "block"] = Policy.OFF,
    patience: timedelta | None = None,
) -> Callable[[Handler[In, Out]], Capability[In, Out]]:
    """
    Make a capability of an async function of `(ctx, input)`.

    The input's and the result's types are read from the annotations. `retry` says
    more than `max_attempts` and takes its place. `tokens` says what a job is expected
    to cost, `model` what it is expected to call: budgets, fair shares and quotes go by
    them. `guard` says what is done about inputs that look like a prompt injection,
    `patience` how long a job may be told to wait in all, at no cost of an attempt.
    """

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


def _policy(name: str, said: str) -> Policy:
    try:
        return Policy(said)
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
        self.policies: dict[str, Queue] = {}
        self.lanes: dict[str, Lane] = {}
        for found in capabilities:
            self.add(found)

    def add(self, found: Capability[Any, Any]) -> None:
        """Make one known; a name is taken once."""
        if self._by_name.setdefault(found.name, found) is not found:
            raise ConfigurationError(f"two capabilities are named {found.name!r}")

    def own(self, found: Capability[Any, Any]) -> None:
        """Make one known that the house itself asks for: it is offered to nobody."""
        if found.name in self._by_name:
            raise ConfigurationError(f"{found.name!r} is a capability of the house")
        self._own[found.name] = found

    def limit(self, queue: Queue) -> None:
        """Declare what a queue allows; it is said once."""
        if self.policies.setdefault(queue.name, queue) is not queue:
            raise ConfigurationError(f"queue {queue.name!r} is declared twice")

    def pace(self, lane: Lane) -> None:
        """Declare what a provider allows; it is said once."""
        if self.lanes.setdefault(lane.name, lane) is not lane:
            raise ConfigurationError(f"lane {lane.name!r} is declared twice")

    def get(self, name: str) -> Capability[Any, Any] | None:
        """Return a capability, or `None`."""
        return self._by_name.get(name) or self._own.get(name)

    def find(self, name: str) -> Capability[Any, Any]:
        """Return a capability, or say which name may have been meant."""
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
        """Return the queues that may be asked for."""
        return sorted({found.queue for found in self._by_name.values()})

    def served(self) -> list[str]:
        """Return the queues that a worker takes from, the house's own included."""
        return sorted({*self.queues(), *(own.queue for own in self._own.values())})


def _annotations(name: str, handler: Callable[..., Any]) -> tuple[Any, Any]:
    if not inspect.iscoroutinefunction(handler):
        raise ConfigurationError(f"capability {name!r} must be an `async def`")
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
