"""Prices and context sizes of models."""

from typing import Protocol

from backburner.domain.costs.usage import Price, Usage


class Prices(Protocol):
    """A table of prices. It uses no network."""

    async def load(self) -> None:
        """Load the prices; return at once if they are loaded."""
        ...

    def price(self, call: Usage) -> Price:
        """Return the cost of a call; unknown while the prices are not loaded."""
        ...

    def dearest(self, model: str) -> Price:
        """Return the highest price of a million tokens of a model."""
        ...

    def ceiling(self, model: str) -> int | None:
        """Return the most tokens that one call can use; `None` if unknown."""
        ...


class NoPrices:
    """A table without prices."""

    async def load(self) -> None:
        """Do nothing."""

    def price(self, call: Usage) -> Price:
        del call
        return Price()

    def dearest(self, model: str) -> Price:
        del model
        return Price()

    def ceiling(self, model: str) -> int | None:
        del model
        return None
