"""What models cost, and how much they can take."""

from typing import Protocol

from backburner.domain.costs.usage import Price, Usage


class Prices(Protocol):
    """A table of prices. Nothing here goes over a network."""

    async def load(self) -> None:
        """Make ready to tell prices; at once if they are."""
        ...

    def price(self, call: Usage) -> Price:
        """Return what a call costs; unknown, too, while nothing is loaded."""
        ...

    def dearest(self, model: str) -> Price:
        """Return what a million tokens of a model cost at most."""
        ...

    def ceiling(self, model: str) -> int | None:
        """Return the most tokens that a job of one call can take; `None`: unknown."""
        ...


class NoPrices:
    """Knows no price."""

    async def load(self) -> None:
        """Have nothing to do."""

    def price(self, call: Usage) -> Price:
        del call
        return Price()

    def dearest(self, model: str) -> Price:
        del model
        return Price()

    def ceiling(self, model: str) -> int | None:
        del model
        return None
