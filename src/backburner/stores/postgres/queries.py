"""The store's statements, one file each under queries/; comments are for readers."""

from dataclasses import dataclass
from typing import Self

from backburner.stores.shared.statements import load


@dataclass(frozen=True, slots=True)
class Queries:
    """Every statement of the store, by the name of its file."""

    beat_worker: str
    remove_dead_workers: str
    cancel_dependents: str
    check_claim: str
    claim_jobs: str
    close_holds: str
    conclude_flows: str
    count_down_flows: str
    count_running: str
    count_waiting: str
    delete_jobs: str
    dismiss_worker: str
    draw_keys: str
    draw_transaction: str
    enlist_worker: str
    event_horizon: str
    find_by_key: str
    finish_jobs: str
    free_idempotency_key: str
    has_overdue: str
    has_policies: str
    has_queued: str
    insert_edges: str
    insert_entries: str
    insert_events: str
    insert_flow_ends: str
    insert_holds: str
    insert_jobs: str
    insert_totals: str
    insert_usages: str
    limit_transaction: str
    list_accounts: str
    list_budgets: str
    list_callbacks: str
    list_gates: str
    list_changes: str
    list_estimates: str
    list_held: str
    list_history: str
    list_needs: str
    list_news: str
    list_results: str
    list_holds: str
    list_shares: str
    lock_accounts: str
    lock_batch_at_once: str
    lock_batches: str
    lock_flows: str
    lock_flows_shared: str
    lock_gate: str
    lock_jobs: str
    lock_name: str
    mark_gate: str
    move_jobs: str
    next_due: str
    post_accounts: str
    promote_jobs: str
    read_clock: str
    release_jobs: str
    report_notes: str
    save_steps: str
    settle_jobs: str
    take_shares: str
    touch_store: str

    @classmethod
    def load(cls) -> Self:
        """Read them from the package."""
        return load(cls, "backburner.stores.postgres")
