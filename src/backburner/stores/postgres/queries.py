"""The store's statements, one file each under queries/; comments are for readers."""

from dataclasses import dataclass
from typing import Self

from backburner.stores.statements import load


@dataclass(frozen=True, slots=True)
class Queries:
    """Every statement of the store, by the name of its file."""

    beat_worker: str
    bury_workers: str
    claim_jobs: str
    delete_jobs: str
    dismiss_worker: str
    enlist_worker: str
    event_horizon: str
    find_by_key: str
    finish_jobs: str
    free_idempotency_key: str
    insert_jobs: str
    is_enlisted: str
    list_held: str
    list_history: str
    list_news: str
    list_stream: str
    move_jobs: str
    next_due: str
    promote_jobs: str
    report_progress: str
    settle_jobs: str
    touch_store: str

    @classmethod
    def load(cls) -> Self:
        """Read them from the package."""
        return load(cls, "backburner.stores.postgres")
