"""Events: numbered within a job, and ordered overall."""

from backburner.domain.events import event
from backburner.domain.jobs.outcome import Done, HandedBack
from backburner.ports.store import Store
from backburner.testing.samples import ANN, BOB, NOON, a_new_job
from backburner.testing.store.acts import (
    SECOND,
    WithWorkers,
    find,
    progress,
    settlement,
    submit,
    text,
    types,
)


class EventLogConformance(WithWorkers):
    """Events: numbered from 1 within a job, and ordered overall."""

    async def test_a_jobs_events_are_numbered_without_gaps(self, store: Store) -> None:
        claim = await self.claimed(store)
        await store.report([progress(claim, at=NOON + 1)])
        await store.settle([settlement(claim, Done("1"))])

        history = await store.history(claim.id, after=0, limit=9)

        assert [
            (1, event.QUEUED, NOON, {}),
            (3, event.PROGRESS, NOON + 1, {"done": 1}),
            (4, event.SUCCEEDED, NOON + SECOND, {}),
        ] == [(e.n, e.type, e.at, e.data) for e in history if e.n != 2]
        assert [1, 2, 3, 4] == [e.n for e in history]
        assert {claim.id} == {e.subject for e in history}
        assert 4 == (await find(store, claim.id)).events

    async def test_a_history_is_read_in_pages(self, store: Store) -> None:
        claim = await self.claimed(store)
        await store.settle([settlement(claim, Done("1"))])

        first = await store.history(claim.id, after=0, limit=2)
        rest = await store.history(claim.id, after=2, limit=2)

        assert [1, 2] == [e.n for e in first]
        assert [3] == [e.n for e in rest]
        assert [] == list(await store.history("job_unknown", after=0, limit=9))

    async def test_progress_is_noted_on_the_job(self, store: Store) -> None:
        claim = await self.claimed(store)

        await store.report([progress(claim)])

        assert '{"done":1}' == (await find(store, claim.id)).progress

    async def test_progress_under_another_token_is_skipped(self, store: Store) -> None:
        claim = await self.claimed(store)

        await store.report(
            [progress(claim, token="stale"), text(claim, "a", token="stale")]
        )

        assert (await find(store, claim.id)).progress is None
        assert [event.QUEUED, event.STARTED] == await types(store, claim.id)

    async def test_a_stale_report_beside_it_does_not_hide_the_owners(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)

        await store.report(
            [
                progress(claim),
                progress(claim, token="stale", data='{"done":9}'),
            ]
        )

        assert '{"done":1}' == (await find(store, claim.id)).progress
        assert 3 == (await find(store, claim.id)).events

    async def test_text_is_told_in_order_and_leaves_the_progress_alone(
        self, store: Store
    ) -> None:
        claim = await self.claimed(store)

        await store.report(
            [
                text(claim, "one", n=3),
                progress(claim, n=4),
                text(claim, "two", n=5, at=NOON + 1),
            ]
        )

        history = await store.history(claim.id, after=2, limit=9)
        assert [(3, "one", NOON), (5, "two", NOON + 1)] == [
            (e.n, e.data["text"], e.at) for e in history if e.type == event.DELTA
        ]
        assert {2} == {e.data["epoch"] for e in history if e.type == event.DELTA}
        assert '{"done":1}' == (await find(store, claim.id)).progress

    async def test_a_report_that_is_repeated_is_told_once(self, store: Store) -> None:
        claim = await self.claimed(store)
        first = [text(claim, "one", n=3), progress(claim, n=4)]

        await store.report(first)
        await store.report([*first, text(claim, "two", n=5)])
        await store.report(first[:1])

        history = await store.history(claim.id, after=2, limit=9)
        assert [3, 4, 5] == [e.n for e in history]
        assert [event.DELTA, event.PROGRESS, event.DELTA] == [e.type for e in history]

    async def test_a_note_that_is_not_the_next_is_skipped(self, store: Store) -> None:
        claim = await self.claimed(store)

        await store.report([text(claim, "two", n=4)])

        assert [event.QUEUED, event.STARTED] == await types(store, claim.id)

    async def test_any_text_is_told_as_it_was(self, store: Store) -> None:
        claim = await self.claimed(store)
        told = 'a "quote", \\ back, \u0000, line\nbreak, grüße, 🙂'

        await store.report([text(claim, told)])

        (last,) = await store.history(claim.id, after=2, limit=9)
        assert told == last.data["text"]

    async def test_a_claim_knows_the_number_of_its_start(self, store: Store) -> None:
        claim = await self.claimed(store)
        await store.report([text(claim, "one")])
        await store.settle([settlement(claim, HandedBack())])

        (again,) = await self.claim(store, token="t2")

        history = await store.history(claim.id, after=0, limit=9)
        starts = [e.n for e in history if e.type == event.STARTED]
        assert [claim.events, again.events] == starts == [2, 5]

    async def test_changes_leave_out_what_handlers_say(self, store: Store) -> None:
        claim = await self.claimed(store)
        await store.report([text(claim, "one", n=3), progress(claim, n=4)])
        await store.settle([settlement(claim, Done("1"))])

        changes = await store.changes(claim.id, limit=9)

        first = await store.changes(claim.id, limit=2)
        rest = await store.changes(claim.id, after=2, limit=9)

        assert [1, 2, 5] == [e.n for e in changes]
        assert [1, 2] == [e.n for e in first]
        assert [5] == [e.n for e in rest]

    async def test_news_are_told_for_many_jobs_in_the_order_they_happened(
        self, store: Store
    ) -> None:
        await store.submit([a_new_job() for _ in range(3)])
        first, second, _ = await self.claim(store, 3)
        await store.settle([settlement(second, Done("2"))])
        await store.settle([settlement(first, Done("1"))])

        news = await store.news([(first.seq, 1), (second.seq, 2)], limit=9)

        assert [(first.id, 2), (second.id, 3), (first.id, 3)] == [
            (e.subject, e.n) for e in news
        ]
        assert sorted(e.seq for e in news) == [e.seq for e in news]
        assert 2 == len(await store.news([(first.seq, 0)], limit=2))
        assert [] == list(await store.news([], limit=9))

    async def test_a_stream_tells_an_owner_everything_once_and_in_order(
        self, store: Store
    ) -> None:
        ann = await self.claimed(store, owner=ANN)
        await submit(store, owner=BOB)
        await store.settle([settlement(ann, Done("1"))])

        stream = (await store.stream(ANN, after=0, limit=9)).events
        page = (await store.stream(ANN, after=stream[0].seq, limit=1)).events

        assert [1, 2, 3] == [e.n for e in stream]
        assert {ann.id} == {e.subject for e in stream}
        assert [stream[1]] == list(page)
        assert [] == list(
            (await store.stream(ANN, after=stream[-1].seq, limit=9)).events
        )

    async def test_the_latest_event_is_where_a_stream_ends(self, store: Store) -> None:
        at_first = await store.latest()
        await submit(store, owner=ANN)
        stream = (await store.stream(ANN, after=0, limit=9)).events

        assert at_first < await store.latest() == stream[-1].seq
