"""The receipt of a cancelled job: its usage and what cannot be undone."""

from typing import NamedTuple

from backburner.domain.costs.usage import Spent


class Left(NamedTuple):
    """Something that a cancel does not undo."""

    kind: str
    number: int
    detail: str


class Receipt(NamedTuple):
    """
    What a job had used when it was cancelled, and what became of what was held for it.

    It is of that moment: asked for again, it is the same. A call that the job's last
    run tells of later is in the job's usage, and not in here.
    """

    spent: Spent
    tokens_released: int | None
    """`None`: no budget held tokens for it."""
    money_released: int | None
    text: int
    """How many characters of text its readers got."""
    webhooks: int
    runs: int

    @property
    def not_undone(self) -> list[Left]:
        """What was done and stays done, as far as it is known here."""
        used = f"{self.spent.tokens} tokens of {', '.join(self.spent.models)}"
        told = [
            Left("calls", self.spent.calls, f"model calls that used {used}"),
            Left("text", self.text, "characters of text that readers have received"),
            Left("webhooks", self.webhooks, "webhooks about earlier ends"),
            Left(
                "runs",
                self.runs,
                "runs of the handler, with possible side effects elsewhere",
            ),
        ]
        return [left for left in told if left.number]
