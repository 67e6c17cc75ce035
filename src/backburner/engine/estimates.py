"""What a job will take, before it is submitted: said, and kept within reason."""

from backburner.domain.usage import MICRO, Price
from backburner.ports.prices import Prices


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
