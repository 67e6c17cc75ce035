"""Actions whose entries in the audit log commit with them, or not at all."""

from dataclasses import replace

import pytest

from backburner.domain.jobs import transitions
from backburner.domain.jobs.step import StepResult
from backburner.ports.store import Store
from backburner.ports.store.jobs import Amendment
from backburner.ports.store.transactions import Tx
from backburner.testing.samples import NOON, a_new_job
from backburner.testing.store.acts import DAY, Refused, WithWorkers, find, retry, submit
from backburner.testing.store.keys import an_entry
from backburner.testing.store.timetable import SAVED

DONE = [an_entry("done")]
REFUSED = [an_entry("refused")]


async def told(store: Store) -> list[str]:
    """Return the actions in the audit log, the newest first."""
    entries = await store.audited("t", before=None, limit=9)
    return [entry.action for entry in entries]


class AuditedConformance(WithWorkers):
    """`Tx.record`, and the `entries` of `reopen`, `amend` and others."""

    async def test_entries_of_a_transaction_commit_with_it(self, store: Store) -> None:
        job = a_new_job()

        def submitted(tx: Tx) -> None:
            tx.submit([job])
            tx.record(DONE)

        def refused(tx: Tx) -> None:
            tx.submit([a_new_job()])
            tx.record(REFUSED)
            raise Refused

        await store.transact(submitted)
        with pytest.raises(Refused):
            await store.transact(refused)

        assert ["done"] == await told(store)
        assert job.id == (await find(store, job.id)).id

    async def test_a_retry_has_entries_if_any_job_is_retried(
        self, store: Store
    ) -> None:
        first, second = await self.failed(store), await self.failed(store)
        await store.reopen([retry(first)])
        held = [
            await store.reopen([retry(first)], entries=REFUSED),
            await store.reopen([retry(first), retry(second)], entries=DONE),
        ]

        assert [[False], [False, True]] == [list(one) for one in held]
        assert ["done"] == await told(store)

    async def test_a_change_has_entries_if_the_job_is_as_it_was(
        self, store: Store
    ) -> None:
        job = await find(store, await submit(store))
        later = transitions.reschedule(job, NOON + DAY, now=NOON)
        changes = [Amendment(7, later), Amendment(3)]
        held = [
            await store.amend(job, changes[0], DONE),
            await store.amend(job, changes[1], REFUSED),
        ]

        assert [True, False] == held
        assert ["done"] == await told(store)

    async def test_a_schedule_has_entries_unless_code_declares_it(
        self, store: Store
    ) -> None:
        declared = replace(SAVED, name="declared", owner=None, input=None)
        await store.plan([declared])
        saved = [
            await store.save_schedule(SAVED, DONE),
            await store.save_schedule(replace(SAVED, name="declared"), REFUSED),
        ]

        assert [True, False] == saved
        assert ["done"] == await told(store)

    async def test_a_fork_and_its_entries_are_stored_together(
        self, store: Store
    ) -> None:
        job = a_new_job()
        result = StepResult(0, "", "step/a", "step", "a", 0, NOON, '"one"')
        await store.submit_fork(job, [result], "{}", DONE)
        with pytest.raises(Exception, match=r"(?i)unique"):
            await store.submit_fork(job, [result], "{}", REFUSED)

        assert ["done"] == await told(store)
