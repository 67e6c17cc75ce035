"""The store's statements, one file each under queries/; comments are for readers."""

from dataclasses import dataclass
from typing import Self

from backburner.stores.shared.statements import load


@dataclass(frozen=True, slots=True)
class Queries:
    """Every statement of the store, by the name of its file."""

    advance_fronts: str
    beat_worker: str
    remove_dead_workers: str
    cancel_dependents: str
    check_claim: str
    claim_jobs: str
    close_holds: str
    conclude_flows: str
    count_running: str
    count_waiting: str
    delete_events: str
    delete_jobs: str
    delete_steps: str
    delete_waits: str
    dismiss_worker: str
    enlist_worker: str
    find_by_key: str
    finish_jobs: str
    first_queued: str
    free_idempotency_key: str
    hand_on_jobs: str
    has_queued: str
    insert_edges: str
    insert_entries: str
    insert_events: str
    insert_flow_ends: str
    insert_handed_events: str
    insert_holds: str
    insert_job: str
    insert_jobs: str
    insert_start_events: str
    insert_state_events: str
    insert_submit_events: str
    insert_totals: str
    insert_usages: str
    last_key: str
    last_seq: str
    latest_event: str
    list_accounts: str
    list_callbacks: str
    list_gates: str
    list_changes: str
    list_dependents: str
    list_estimates: str
    list_held: str
    list_history: str
    list_needs: str
    list_news: str
    list_results: str
    list_holds: str
    lock_accounts: str
    mark_gate: str
    move_jobs: str
    next_due: str
    post_accounts: str
    promote_jobs: str
    read_gate: str
    read_share: str
    release_jobs: str
    report_notes: str
    save_shares: str
    save_steps: str
    settle_jobs: str
    touch_store: str

    @classmethod
    def load(cls) -> Self:
        """Read them from the package."""
        return load(cls, "backburner.stores.sqlite")
