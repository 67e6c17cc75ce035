"""How the balance of a budget's account changed during its current window."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from backburner.domain.costs.budget import Balance, BudgetState
from backburner.domain.jobs.job import Instant

SLOTS: Final = 48
"""Into how many slots a window is divided; an account has one sample in each."""
SHORTEST_SLOT: Final = 60_000
SHORTEST_WINDOW: Final = 600_000
"""Accounts of shorter windows are not sampled. In milliseconds."""


def slot_length(per: int) -> int:
    """Return the length of a slot of a window, in milliseconds."""
    return max(per // SLOTS, SHORTEST_SLOT)


class BalanceSample(NamedTuple):
    """The balance of an account at one time."""

    at: Instant
    balance: Balance
    limit: int


class BalanceHistory(NamedTuple):
    """An account in its current window: earlier samples, and its state now."""

    state: BudgetState
    now: Instant
    samples: Sequence[BalanceSample]
    """At most one for each slot, oldest first; none for slots without a change."""


class AccountName(NamedTuple):
    """Identifies the account of a budget in its current window, as callers see it."""

    scope: str
    value: str
    """For the scope `flow`, the flow's id."""
    unit: str
    per: int
    """The window's length, in milliseconds."""
