"""The store's statements, one file each under queries/; comments are for readers."""

from dataclasses import dataclass
from typing import Self

from backburner.stores.shared.statements import CommonQueries


@dataclass(frozen=True, slots=True)
class Queries(CommonQueries):
    """All statements of the store, by the names of their files."""

    advance_fronts: str
    delete_events: str
    delete_steps: str
    delete_waits: str
    first_queued: str
    hand_on_jobs: str
    insert_handed_events: str
    insert_job: str
    insert_start_events: str
    insert_state_events: str
    insert_submit_events: str
    last_key: str
    last_seq: str
    latest_event: str
    list_dependents: str
    read_gate: str
    read_share: str
    save_shares: str

    @classmethod
    def load(cls) -> Self:
        """Load them from the package."""
        return cls.load_from("backburner.stores.sqlite")
