"""
Usage of models, call by call, and its cost.

Money is whole micro-dollars, rounded up for each call. A cost that nobody knows is
`None`: it is never taken for nothing, and neither is a sum that it belongs to.
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
    """Those of the input that the provider had read before."""
    at: Instant = 0
    cost: int | None = None
    """In micro-dollars; `None`: nobody knows."""
    price_version: str | None = None
    """Which table of prices said so."""

    @property
    def tokens(self) -> int:
        """All of them."""
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
    Check what a call is said to have used.

    Names are made fit to be stored; a count that is none is the caller's mistake.
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
        raise ValueError(f"a count of tokens is a whole number up to {MOST_TOKENS}")
    return count


def _named(name: str) -> str:
    kept = name[:LONGEST_NAME]
    return "".join(ch if ch.isprintable() else "?" for ch in kept)


class Price(NamedTuple):
    """What a call costs, and who says so."""

    cost: int | None = None
    version: str | None = None


class Booking(NamedTuple):
    """What a run of a job has used so far; booked twice, it counts once."""

    seq: int
    token: str
    """By which the run holds the job; if it does not any more, this is late."""
    generation: int
    epoch: int
    """The number of the run's `job.started`: attempts are given back, runs are not."""
    calls: Sequence[Usage]
    """All calls of the run, in order, or the first of them."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Calls, added up."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    known_cost: int = 0
    """Of the calls whose cost is known, in micro-dollars."""
    unpriced: int = 0
    """How many calls there are whose cost is not."""
    late: int = 0
    """How many were booked after their run had lost the job."""
    jobs: int = 0
    models: tuple[str, ...] = ()
    price_versions: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Of input and output."""
        return self.input_tokens + self.output_tokens

    @property
    def cost(self) -> int | None:
        """What all of it cost; `None` if a part is not known."""
        return None if self.unpriced else self.known_cost

    def __add__(self, other: "Spent") -> "Spent":
        """Add up what different jobs spent."""
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
    """Write an amount of money, to the micro-dollar."""
    if micro is None:
        return None
    sign, whole = "-" if micro < 0 else "", abs(micro)
    return f"{sign}{whole // MICRO}.{whole % MICRO:06}"
