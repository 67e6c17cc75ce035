"""The contract for deleting a user's data."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from backburner.domain.jobs.job import Owner


class Erasable(NamedTuple):
    """Finished work and blobs of a user, as much as one transaction can delete."""

    flows: Sequence[int] = ()
    jobs: Sequence[int] = ()
    """Jobs that are in no flow."""
    blobs: Sequence[int] = ()
    """Blobs that applications keep for the user."""
    ids: Sequence[str] = ()
    """Owners of contents to delete first: these jobs, including steps, and blobs."""


class ErasureStore(Protocol):
    """
    Deletes a user's data in short transactions.

    Each method may be repeated after a crash. The audit log is not changed.
    """

    async def unfinished(self, owner: Owner, *, limit: int) -> Sequence[str]:
        """Return the ids of a user's unfinished batches, flows and single jobs."""
        ...

    async def erasable(self, owner: Owner, *, limit: int) -> Erasable:
        """Return some of a user's finished work and blobs; empty if none is left."""
        ...

    async def erase(self, owner: Owner, which: Erasable) -> int:
        """
        Delete jobs, flows with their events, and blobs; return how many there were.

        Those that another caller has retried meanwhile stay.
        """
        ...

    async def erase_records(self, owner: Owner, *, limit: int) -> int:
        """
        Delete some of a user's keys, endpoints, published events and finished batches.

        The user's budgets and shares are deleted too. Return the number of rows; 0 if
        none is left.
        """
        ...

    async def anonymise(self, owner: Owner, alias: str, *, limit: int) -> int:
        """
        Rename the user in some usage records and ledger accounts.

        Amounts stay, tags are removed. Return the number of rows; 0 if none is left.
        """
        ...
