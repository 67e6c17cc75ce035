"""
The builder of flows: steps in the order in which they run.

    flow = Flow()
    text = flow.add(extract, {"url": url})
    parts = flow.map(summarise, pieces, after=[text])
    flow.add(join, after=parts)

A step without its own input takes the outputs of its prerequisites.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar, Unpack, overload

from pydantic import TypeAdapter

from backburner.domain.errors import InvalidInput
from backburner.domain.groups.flow import Edge
from backburner.engine.options import StepOptions

In = TypeVar("In")
Out = TypeVar("Out")

NOTHING: Final = object()
"""The step has no input of its own."""


class Named(Protocol):
    """Anything with the name of a capability."""

    @property
    def name(self) -> str:
        """The name under which it is registered."""
        ...


class Typed(Named, Protocol[In, Out]):
    """Anything with the name and the types of a capability."""

    @property
    def input(self) -> TypeAdapter[In]:
        """The type of its input."""
        ...

    @property
    def output(self) -> TypeAdapter[Out]:
        """The type of its result."""
        ...


Asked = Named | str


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of capabilities: each takes the output of the one before it."""

    capabilities: tuple[Named, ...]

    def __rshift__(self, other: "Named | Chain") -> "Chain":
        more = other.capabilities if isinstance(other, Chain) else (other,)
        return Chain((*self.capabilities, *more))


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A step that was added to a flow builder."""

    name: str
    capability: Asked
    input: Any
    needs: tuple[Edge, ...]
    before: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def anyway(self) -> Edge:
        """Return this step as one that may fail: `after=[step.anyway]`."""
        return Edge(self.name, continues=True)


After = Planned | Edge | str


class Flow:
    """A graph of steps, built in execution order and submitted as a whole."""

    def __init__(self, prefix: str = "") -> None:
        self.steps: list[Planned] = []
        self._prefix = prefix
        self._counts: dict[str, int] = {}

    @overload
    def add(
        self,
        step: Typed[In, Any],
        input: In = ...,
        *,
        after: Iterable[After] = (),
        name: str | None = None,
        before: Iterable[Planned | str] = (),
        **options: Unpack[StepOptions],
    ) -> Planned: ...

    @overload
    def add(
        self,
        step: str | Chain,
        input: Any = NOTHING,
        *,
        after: Iterable[After] = (),
        name: str | None = None,
        before: Iterable[Planned | str] = (),
        **options: Unpack[StepOptions],
    ) -> Planned: ...

    def add(
        self,
        step: Asked | Chain,
        input: Any = NOTHING,  # noqa: A002 - the word for it everywhere
        *,
        after: Iterable[After] = (),
        name: str | None = None,
        before: Iterable[Planned | str] = (),
        **options: Unpack[StepOptions],
    ) -> Planned:
        """
        Add a step that runs after others; for a chain, return its last step.

        Without an input it takes the output of its prerequisite or, with several, an
        object of their outputs by name. Options: `queue`, `priority`, `delay`,
        `run_at`, `start_by`, `tags`, `metadata`, `max_attempts`, `callback`,
        `completion`.
        """
        links = step.capabilities if isinstance(step, Chain) else (step,)
        edges = tuple(map(_edge, after))
        holding = tuple(_name(held) for held in before)
        for place, link in enumerate(links):
            is_last = place == len(links) - 1
            planned = Planned(
                self._name(link, name if is_last else None),
                link,
                input,
                edges,
                holding if is_last else (),
                options,
            )
            self.steps.append(planned)
            edges, input = (Edge(planned.name),), NOTHING  # noqa: A001 - same
        return planned

    @overload
    def map(
        self,
        step: Typed[In, Any],
        inputs: Iterable[In],
        *,
        after: Iterable[After] = (),
        before: Iterable[Planned | str] = (),
        **options: Unpack[StepOptions],
    ) -> list[Planned]: ...

    @overload
    def map(
        self,
        step: str | Chain,
        inputs: Iterable[Any],
        *,
        after: Iterable[After] = (),
        before: Iterable[Planned | str] = (),
        **options: Unpack[StepOptions],
    ) -> list[Planned]: ...

    def map(
        self,
        step: Any,
        inputs: Iterable[Any],
        *,
        after: Iterable[After] = (),
        before: Iterable[Planned | str] = (),
        **options: Unpack[StepOptions],
    ) -> list[Planned]:
        """Add one step per input; the steps run in parallel."""
        edges, held = [*after], [*before]
        return [
            self.add(step, value, after=edges, before=held, **options)
            for value in inputs
        ]

    def _name(self, asked: Asked, name: str | None) -> str:
        """Return the given name, or one derived from the capability's name."""
        if name is not None and name in self._counts:
            raise InvalidInput(f"two steps are named {name!r}")
        made = base = name or self._prefix + _name(asked)
        while made in self._counts:
            self._counts[base] += 1
            made = f"{base}-{self._counts[base]}"
        self._counts[made] = 1
        return made


def anyway(added: Sequence[Planned], by: str) -> list[Planned]:
    """Return the added steps that start whatever the outcome of the adding step."""
    left = {planned.name for planned in added}
    found: list[Planned] = []
    for planned in added:
        # A step that waits for one that is left out could never run.
        if Edge(by, continues=True) in planned.needs and not any(
            edge.step in left for edge in planned.needs
        ):
            left.discard(planned.name)
            found.append(planned)
    return found


def written(asked: Flow | Chain | Sequence[Planned], value: Any = NOTHING) -> Flow:
    """Return the argument as a flow; a chain gets its input here."""
    if isinstance(asked, Flow):
        return asked
    flow = Flow()
    if isinstance(asked, Chain):
        flow.add(asked, value)
    else:
        flow.steps.extend(asked)
    return flow


def _edge(after: After) -> Edge:
    return after if isinstance(after, Edge) else Edge(_name(after))


def _name(step: Named | str) -> str:
    return step if isinstance(step, str) else step.name
