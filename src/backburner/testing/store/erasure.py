"""Erasing a user: all of the user's data goes, others' stays, amounts stay."""

from dataclasses import replace

from backburner.domain.groups.batch import Members
from backburner.domain.jobs.job import Owner
from backburner.ports.store import Store
from backburner.ports.store.usage import UsageFilter
from backburner.testing.samples import (
    ANN,
    BOB,
    a_new_batch,
    a_new_flow,
    a_new_job,
    a_new_step,
)
from backburner.testing.store.acts import WithWorkers, retry, submit
from backburner.testing.store.app_blobs import a_blob, insert
from backburner.testing.store.keys import a_key, an_entry
from backburner.testing.store.linked import GOOD, Course, Hands
from backburner.testing.store.publications import a_note, publish
from backburner.testing.store.timetable import NIGHTLY, SAVED
from backburner.testing.store.usages import CALL, settled


async def erase_all(store: Store, owner: Owner, limit: int = 2) -> int:
    """Delete finished work in several calls; return the number of jobs."""
    count = 0
    while any(which := await store.erasable(owner, limit=limit)):
        count += await store.erase(owner, which)
    while await store.erase_records(owner, limit=limit):
        pass
    return count


class ErasureConformance(WithWorkers):
    """`ErasureStore`: deletes the data of a user, and nothing else."""

    async def test_finished_work_of_a_user_goes_and_others_keep_theirs(
        self, store: Store
    ) -> None:
        hands = Hands(store)
        mine = [await submit(store) for _ in range(5)]
        theirs = await submit(store, owner=BOB)
        flow = a_new_flow(a_new_step("a"), a_new_step("b", "a"))
        await store.submit_flows([flow])
        await hands.end(*mine, theirs)
        await Course(hands, flow.id).end("a")
        await Course(hands, flow.id).end("b")

        assert 7 == await erase_all(store, ANN)
        assert [] == await store.find(mine)
        assert [] == await store.find_flows([flow.id])
        assert [theirs] == [job.id for job in await store.find([theirs])]
        assert [] == [*(await store.stream(ANN, after=0, limit=9)).events]
        assert (await store.stream(BOB, after=0, limit=9)).events

    async def test_what_goes_on_is_named_and_stays(self, store: Store) -> None:
        job = await submit(store)
        await submit(store, owner=BOB)
        flow = a_new_flow(a_new_step("a"))
        await store.submit_flows([flow])
        batch = a_new_batch()
        await store.open_batch(batch, Members([a_new_job()]))

        going_on = await store.unfinished(ANN, limit=9)

        assert {job, flow.id, batch.id} < {*going_on}
        assert 4 == len(going_on), "a step is named by its flow"
        assert 1 == len(await store.unfinished(ANN, limit=1))
        assert 0 == await erase_all(store, ANN)
        assert 1 == len(await store.find([job]))

    async def test_a_job_that_is_retried_meanwhile_stays(self, store: Store) -> None:
        failed = await self.failed(store)
        which = await store.erasable(ANN, limit=9)
        await store.reopen([retry(failed)])

        assert 0 == await store.erase(ANN, which)
        assert 1 == len(await store.find([failed.id]))

    async def test_keys_and_published_events_go_with_their_user(
        self, store: Store
    ) -> None:
        for key_id, owner in (("k1", ANN), ("k2", BOB)):
            key = a_key(key_id, tenant=owner.tenant, user=owner.user)
            await store.add_key(key, an_entry(tenant=owner.tenant))
        await publish(store, a_note(n=1), a_note(n=2), a_note(n=3), a_note(to=BOB, n=4))
        await erase_all(store, ANN)

        assert ["k2"] == [key.id for key in await store.list_keys()]
        assert [] == [*(await store.stream(ANN, after=0, limit=9)).events]
        assert 1 == len((await store.stream(BOB, after=0, limit=9)).events)
        assert 2 == len(await store.audited("acme", before=None, limit=9))

    async def test_saved_schedules_go_with_their_user(self, store: Store) -> None:
        for n, owner in enumerate((ANN, ANN, ANN, BOB)):
            await store.save_schedule(replace(SAVED, name=f"s{n}", owner=owner))
        await store.plan([NIGHTLY])
        await erase_all(store, ANN)

        _, left = await store.schedules()
        assert [("nightly", None), ("s3", BOB)] == [(s.name, s.owner) for s in left]

    async def test_blobs_of_applications_go_with_their_user(self, store: Store) -> None:
        mine = [a_blob(f"blob_{n}", owner=ANN) for n in range(3)]
        await insert(store, *mine, a_blob("blob_9", owner=BOB))

        assert 3 == await erase_all(store, ANN)
        found = await store.find_blobs(["blob_0", "blob_9"])
        assert ["blob_9"] == [blob.id for blob in found]

    async def test_usage_keeps_its_amounts_and_loses_the_name(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store, tags=("of ann",))
        await store.settle([settled(claim, GOOD, CALL)])
        everybody = UsageFilter("acme")
        before = await store.sums(everybody, "model", limit=9)
        while await store.anonymise(ANN, "erased_1", limit=1):
            pass
        _, users = await store.sums(everybody, "user", limit=9)
        _, tags = await store.sums(everybody, "tag", limit=9)

        assert before == await store.sums(everybody, "model", limit=9)
        assert ["erased_1"] == [name for name, _ in users]
        assert [] == [name for name, _ in tags if name == "of ann"]
