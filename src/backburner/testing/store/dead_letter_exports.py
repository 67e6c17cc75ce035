"""The export of dead letters to a broker."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from backburner.domain.jobs.job import JobState
from backburner.ports.store import Store
from backburner.testing.samples import a_new_job
from backburner.testing.store.acts import LetPass, find, retry
from backburner.testing.store.linked import BAD, GOOD, Hands, WithFlows

SPAN = timedelta(seconds=30)


async def fail(hands: Hands, *names: str) -> None:
    """Fail jobs one after the other."""
    for name in names:
        job = a_new_job(id=name, input=f'"{name}"')
        await hands.store.submit([job])
        await hands.end(name, outcome=BAD)


async def export(store: Store, exporter: str = "d_1", limit: int = 99) -> Sequence[str]:
    """Return the next dead letters of an exporter without marking them."""
    found = await store.unexported_dead_letters(exporter, span=SPAN, limit=limit)
    return [] if found is None else [job.input.strip('"') for job in found.jobs]


async def mark_dead_letters_exported(
    store: Store, exporter: str = "d_1", limit: int = 99
) -> Sequence[str]:
    """Return the next dead letters of an exporter and mark them as exported."""
    found = await store.unexported_dead_letters(exporter, span=SPAN, limit=limit)
    if found is None:
        return []
    assert await store.mark_dead_letters_exported(exporter, upto=found.upto)
    return [job.id for job in found.jobs]


class DeadLetterExportConformance(WithFlows):
    """`DeadLetterExportStore`: each failure after the beginning is returned once."""

    async def test_what_fails_after_the_beginning_is_found_in_order(
        self, store: Store, hands: Hands
    ) -> None:
        await fail(hands, "before")
        unbegun = await export(store)
        await store.begin_dead_letter_export()
        await fail(hands, "a", "b")
        await store.begin_dead_letter_export()

        assert [] == unbegun
        assert ["a", "b"] == await export(store)

    async def test_what_is_buried_is_not_found_again(
        self, store: Store, hands: Hands
    ) -> None:
        await store.begin_dead_letter_export()
        await fail(hands, "a", "b", "c")
        first = await mark_dead_letters_exported(store, limit=2)
        second = await mark_dead_letters_exported(store, "d_2", limit=2)
        await fail(hands, "d")

        assert (["a", "b"], ["c"], ["d"]) == (
            first,
            second,
            await mark_dead_letters_exported(store),
        )
        assert [] == await mark_dead_letters_exported(store)

    async def test_what_is_not_dead_is_not_found(
        self, store: Store, hands: Hands
    ) -> None:
        await store.begin_dead_letter_export()
        await store.submit([a_new_job(id="good"), a_new_job(id="waits")])
        await hands.end("good", outcome=GOOD)

        assert [] == await export(store)

    async def test_one_digs_at_a_time(
        self, store: Store, hands: Hands, let_pass: LetPass
    ) -> None:
        await store.begin_dead_letter_export()
        await fail(hands, "a")
        first = await store.unexported_dead_letters("d_1", span=SPAN, limit=9)
        others = await export(store, "d_2")
        same = await export(store, "d_1")
        let_pass(SPAN + timedelta(seconds=1))
        later = await export(store, "d_2")

        assert first is not None
        assert ([], ["a"], ["a"]) == (others, same, later)
        assert not await store.mark_dead_letters_exported("d_1", upto=first.upto), (
            "it is another's now"
        )
        assert await store.mark_dead_letters_exported("d_2", upto=first.upto)
        assert not await store.mark_dead_letters_exported("d_2", upto=first.upto), (
            "it is done"
        )

    async def test_of_many_who_come_at_once_one_digs(
        self, store: Store, hands: Hands
    ) -> None:
        await store.begin_dead_letter_export()
        await fail(hands, "a")
        names = [f"d_{n}" for n in range(8)]
        await asyncio.gather(*(export(store, name) for name in names))
        found = [await export(store, name) for name in names]

        assert 1 == found.count(["a"]), "the first of them has it"
        assert 7 == found.count([])

    async def test_a_job_that_was_retried_is_left_out_until_it_fails_again(
        self, store: Store, hands: Hands
    ) -> None:
        await store.begin_dead_letter_export()
        await fail(hands, "a", "b")
        await store.move([retry(await find(store, "a"))])
        first = await mark_dead_letters_exported(store)
        await hands.end("a", outcome=BAD)
        again = await store.unexported_dead_letters("d_1", span=SPAN, limit=9)

        assert ["b"] == first
        assert again is not None
        assert [("a", 1, JobState.FAILED)] == [
            (job.id, job.generation, job.state) for job in again.jobs
        ]

    async def test_two_failures_of_one_job_are_one_letter(
        self, store: Store, hands: Hands
    ) -> None:
        await store.begin_dead_letter_export()
        await fail(hands, "a")
        await store.move([retry(await find(store, "a"))])
        await hands.end("a", outcome=BAD)

        assert ["a"] == await mark_dead_letters_exported(store), (
            "the first is no dead letter any more"
        )
