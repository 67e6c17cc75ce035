"""Estimates the tokens and cost of a job before it is submitted."""

from collections.abc import Callable
from typing import Any

from pydantic_core import to_json

from backburner.domain.costs.tokens import estimate
from backburner.domain.costs.usage import MICRO, Price
from backburner.ports.prices import Prices

FRAME = 9
"""What the chat format adds to a system prompt and a question."""


def estimate_of(*, system: str = "", output: int = 0) -> Callable[[Any], int]:
    """
    Say what a job is expected to cost, for `@capability(tokens=…)`.

    It is the system prompt, the input as it is written into the question, and the
    output that is expected, all in tokens.
    """
    always = FRAME + estimate(system) + output

    def tokens(value: Any) -> int:
        text = value if isinstance(value, str) else to_json(value).decode()
        return always + estimate(text)

    return tokens


def clamped(prices: Prices, model: str | None, tokens: int | None) -> int | None:
    """Return an estimate that is not above what the model can take."""
    ceiling = None if model is None else prices.ceiling(model)
    if tokens is None or ceiling is None:
        return tokens
    return min(tokens, ceiling)


def at_most(prices: Prices, model: str | None, tokens: int | None) -> Price:
    """Return what so many tokens cost if all are of the dearest kind."""
    if model is None or tokens is None:
        return Price()
    dearest = prices.dearest(model)
    if dearest.cost is None:
        return dearest
    return dearest._replace(cost=-(-tokens * dearest.cost // MICRO))
