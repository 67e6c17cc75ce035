"""Loads SQL statements from files, one file each, without comments."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Self


@dataclass(frozen=True, slots=True)
class CommonQueries:
    """The statements that both stores have, by file name."""

    beat_worker: str
    cancel_dependents: str
    check_claim: str
    claim_jobs: str
    close_holds: str
    conclude_flows: str
    count_running: str
    count_waiting: str
    delete_jobs: str
    dismiss_worker: str
    enlist_worker: str
    find_by_key: str
    finish_jobs: str
    free_idempotency_key: str
    has_queued: str
    insert_edges: str
    insert_entries: str
    insert_events: str
    insert_flow_ends: str
    insert_holds: str
    insert_jobs: str
    insert_totals: str
    insert_usages: str
    list_accounts: str
    list_callbacks: str
    list_changes: str
    list_estimates: str
    list_gates: str
    list_held: str
    list_history: str
    list_holds: str
    list_needs: str
    list_news: str
    list_results: str
    lock_accounts: str
    mark_gate: str
    move_jobs: str
    next_due: str
    post_accounts: str
    promote_jobs: str
    release_jobs: str
    remove_dead_workers: str
    report_notes: str
    save_steps: str
    settle_jobs: str
    touch_store: str

    @classmethod
    def load_from(cls, package: str, *, dollars: bool = False) -> Self:
        """
        Read `queries/<name>.sql` of a package for every field, or the shared file.

        Shared statements have parameters as `?1`; `dollars` converts them to `$1`.
        """
        names = tuple(field.name for field in fields(cls))
        return cls(**_texts(package, names, dollars=dollars))


@cache
def _texts(package: str, names: tuple[str, ...], *, dollars: bool) -> Mapping[str, str]:
    """Return statements by name; a process reads the files once."""
    folder = files(package).joinpath("queries")
    common = files("backburner.stores.shared").joinpath("queries")
    texts = {}
    for name in names:
        file = folder.joinpath(f"{name}.sql")
        if file.is_file():
            texts[name] = _without_comments(file.read_text("utf-8"))
        else:
            text = common.joinpath(f"{name}.sql").read_text("utf-8")
            text = re.sub(r"\?(\d)", r"$\1", text) if dollars else text
            texts[name] = _without_comments(text)
    return texts


def _without_comments(text: str) -> str:
    lines = text.strip().splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))
