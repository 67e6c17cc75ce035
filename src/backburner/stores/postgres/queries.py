"""The store's statements, one file each under queries/; comments are for readers."""

from dataclasses import dataclass
from typing import Self

from backburner.stores.shared.statements import CommonQueries


@dataclass(frozen=True, slots=True)
class Queries(CommonQueries):
    """All statements of the store, by the names of their files."""

    count_down_flows: str
    draw_keys: str
    draw_transaction: str
    event_horizon: str
    has_overdue: str
    has_policies: str
    limit_transaction: str
    list_budgets: str
    list_shares: str
    lock_batch_at_once: str
    lock_batches: str
    lock_flows: str
    lock_flows_shared: str
    lock_gate: str
    lock_jobs: str
    lock_name: str
    oldest_event_writer: str
    read_clock: str
    signal_waiting: str
    take_shares: str

    @classmethod
    def load(cls) -> Self:
        """Load them from the package."""
        return cls.load_from("backburner.stores.postgres", dollars=True)
