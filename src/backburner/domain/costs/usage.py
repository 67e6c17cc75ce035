"""
Usage and cost of model calls.

Money is in whole micro-dollars, rounded up for each call. An unknown cost is `None`,
never zero, and so is every sum that includes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Final, NamedTuple

from backburner.domain.jobs.job import Instant

LONGEST_NAME: Final = 200
MOST_TOKENS: Final = 10**12
MICRO: Final = 1_000_000


class Usage(NamedTuple):
    """One call, as its provider counted it."""

    model: str
    input_tokens: int
    output_tokens: int
    provider: str | None = None
    cached_tokens: int = 0
    """The part of the input that the provider served from its cache."""
    at: Instant = 0
    cost: int | None = None
    """In micro-dollars; `None` if unknown."""
    price_version: str | None = None
    """The version of the price table that the cost is from."""
    duration_ms: int | None = None
    """How long the provider took, without waits for its lane; `None` if unknown."""

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


def usage(
    model: str,
    input_tokens: int,
    output_tokens: int,
    provider: str | None = None,
    cached_tokens: int = 0,
    *,
    at: Instant = 0,
) -> Usage:
    """
    Return a validated usage record.

    Names are made storable. An invalid count raises `ValueError`.
    """
    counts = [_count(n) for n in (input_tokens, output_tokens, cached_tokens)]
    if counts[2] > counts[0]:
        raise ValueError("cached tokens cannot exceed the input tokens")
    provider = None if provider is None else _named(provider)
    return Usage(_named(model), counts[0], counts[1], provider, counts[2], at)


def _count(tokens: int) -> int:
    try:
        count = index(tokens)
    except TypeError:
        count = -1
    if isinstance(tokens, bool) or not 0 <= count <= MOST_TOKENS:
        raise ValueError(f"a token count must be from 0 to {MOST_TOKENS}")
    return count


def _named(name: str) -> str:
    short = name[:LONGEST_NAME]
    return "".join(ch if ch.isprintable() else "?" for ch in short)


class Price(NamedTuple):
    """The cost of a call, and the version of the price table."""

    cost: int | None = None
    version: str | None = None


class RunUsage(NamedTuple):
    """All usage of a run so far. Storing it twice counts it once."""

    seq: int
    token: str
    """The claim of the run. If it is no longer valid, the usage is recorded as late."""
    generation: int
    epoch: int
    """The number of the run's `job.started` event, which is unique for each run."""
    calls: Sequence[Usage]
    """The calls of the run in order, from its first one."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The sum of several calls."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    known_cost: int = 0
    """The cost of all calls whose cost is known, in micro-dollars."""
    unpriced: int = 0
    """How many calls have no known cost."""
    late: int = 0
    """How many calls were recorded after their run had lost its claim."""
    jobs: int = 0
    models: tuple[str, ...] = ()
    price_versions: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    @property
    def cost(self) -> int | None:
        """The total cost; `None` if that of any call is unknown."""
        return None if self.unpriced else self.known_cost

    def __add__(self, other: "Spent") -> "Spent":
        """Add the sums of disjoint sets of jobs."""
        return Spent(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.known_cost + other.known_cost,
            self.unpriced + other.unpriced,
            self.late + other.late,
            self.jobs + other.jobs,
            _merged(self.models, other.models),
            _merged(self.price_versions, other.price_versions),
        )


NOTHING: Final = Spent()


def _merged(some: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*some, *more}))


def dollars(micro: int | None) -> str | None:
    """Format micro-dollars as dollars, with six decimals."""
    if micro is None:
        return None
    sign, whole = "-" if micro < 0 else "", abs(micro)
    return f"{sign}{whole // MICRO}.{whole % MICRO:06}"
