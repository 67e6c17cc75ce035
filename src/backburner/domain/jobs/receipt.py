"""The receipt of a cancelled job: its usage and what cannot be undone."""

from typing import NamedTuple

from backburner.domain.costs.usage import Spent


class Left(NamedTuple):
    """A kind of effect that a cancellation does not undo."""

    kind: str
    number: int
    detail: str


class Receipt(NamedTuple):
    """
    The usage of a cancelled job and what was released when it was cancelled.

    It describes that moment and does not change. Calls that the last run reports later
    are in the job's usage but not in the receipt.
    """

    spent: Spent
    tokens_released: int | None
    """`None` if no budget held tokens for it."""
    money_released: int | None
    text: int
    """How many characters of streamed text its readers received."""
    webhooks: int
    runs: int

    @property
    def not_undone(self) -> list[Left]:
        """The known effects that remain."""
        used = f"{self.spent.tokens} tokens of {', '.join(self.spent.models)}"
        effects = [
            Left("calls", self.spent.calls, f"model calls that used {used}"),
            Left("text", self.text, "characters of text that readers have received"),
            Left("webhooks", self.webhooks, "webhooks about earlier ends"),
            Left(
                "runs",
                self.runs,
                "runs of the handler, with possible side effects elsewhere",
            ),
        ]
        return [left for left in effects if left.number]
