"""Waits of jobs for signals, answers and child jobs."""

from collections.abc import Sequence
from typing import Protocol

from backburner.domain.jobs.job import Visibility
from backburner.domain.jobs.wait import (
    NewWait,
    Question,
    Signal,
    Signalled,
    StoredWait,
    WaitRecord,
)


class WaitStore(Protocol):
    """Stores the waits of jobs; each wait is decided once."""

    async def open_wait(
        self, job: int, token: str, generation: int, wait: NewWait
    ) -> StoredWait | None:
        """
        Store a wait of a running job, or return the existing one of that name.

        `None`: the job does not run under the token. A wait whose timeout has passed by
        the store's clock without a signal is decided as timed out. A signal that came
        before a question does not decide it and is deleted.
        """
        ...

    async def find_wait(
        self, job: int, generation: int, name: str
    ) -> StoredWait | None:
        """Return the stored wait of this name that applies in a generation."""
        ...

    async def waits_of(self, job: int, *, most: int) -> Sequence[WaitRecord]:
        """
        Return the waits and signals of a job in order.

        Values of more than `most` characters are left out.
        """
        ...

    async def signal(self, job: int, signal: Signal) -> Signalled:
        """
        Store a signal, durably; queue the job if it waits for the signal.

        A signal may precede its wait. The first value of a name is kept. A question
        takes only answers.
        """
        ...

    async def find_question(
        self, job: int, generation: int, name: str
    ) -> Question | None:
        """Return an open question of a job."""
        ...

    async def questions(
        self, owner: Visibility, *, before: int | None, limit: int
    ) -> Sequence[Question]:
        """Return open questions of unfinished jobs, newest first."""
        ...
