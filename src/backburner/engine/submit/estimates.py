"""Estimates the tokens and cost of a job before it is submitted."""

from collections.abc import Callable
from typing import Any

from pydantic_core import to_json

from backburner.domain.costs.tokens import estimate
from backburner.domain.costs.usage import MICRO, Price
from backburner.ports.prices import Prices

FRAME = 9
"""The tokens that the chat format adds to a system prompt and a question."""


def estimate_of(*, system: str = "", output: int = 0) -> Callable[[Any], int]:
    """
    Return a function that estimates a job's tokens, for `@capability(tokens=…)`.

    The estimate is the sum of the system prompt, the input as it appears in the prompt,
    and the expected output, in tokens.
    """
    always = FRAME + estimate(system) + output

    def tokens(value: Any) -> int:
        text = value if isinstance(value, str) else to_json(value).decode()
        return always + estimate(text)

    return tokens


def clamped(prices: Prices, model: str | None, tokens: int | None) -> int | None:
    """Return an estimate that is at most the model's context size."""
    ceiling = None if model is None else prices.ceiling(model)
    if tokens is None or ceiling is None:
        return tokens
    return min(tokens, ceiling)


def at_most(prices: Prices, model: str | None, tokens: int | None) -> Price:
    """Return the highest possible cost of a number of tokens."""
    if model is None or tokens is None:
        return Price()
    dearest = prices.dearest(model)
    if dearest.cost is None:
        return dearest
    return dearest._replace(cost=-(-tokens * dearest.cost // MICRO))
