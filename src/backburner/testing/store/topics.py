"""Streams about one subject: a flow, a batch, a tag, or all with the queues."""

from collections.abc import Sequence
from datetime import timedelta

from backburner.domain.events import event
from backburner.domain.groups.batch import Members
from backburner.domain.jobs.job import Owner
from backburner.domain.queues.queue import Queue, Rate
from backburner.ports.store import Store
from backburner.ports.store.events import Topic
from backburner.testing.samples import ANN, BOB, a_new_flow, a_new_job, a_new_step
from backburner.testing.store.acts import submit
from backburner.testing.store.linked import Course, Hands, WithFlows


async def told(
    store: Store, topic: Topic, *, owner: Owner = ANN, after: int = 0
) -> Sequence[tuple[str, str]]:
    """Return the subject and type of each event of a topic."""
    found = (await store.stream(owner, after=after, limit=99, topic=topic)).events
    return [(e.subject, e.type) for e in found]


class TopicConformance(WithFlows):
    """`stream` by topic: its events, visible to their owner, in order."""

    async def test_a_flows_stream_is_its_own_and_its_steps(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("a"), a_new_step("b", "a"))
        await self.begin(hands, a_new_step("a"))
        await submit(store)
        await course.end("a")
        flow, jobs = await course.flow(), await course.jobs()
        topic = Topic(flow=flow.seq)
        a, b = jobs["a"].id, jobs["b"].id

        found = (await store.stream(ANN, after=0, limit=99, topic=topic)).events
        page = (
            await store.stream(ANN, after=found[1].seq, limit=2, topic=topic)
        ).events

        assert [
            (flow.id, event.FLOW_STARTED),
            (a, event.QUEUED),
            (b, event.BLOCKED),
            (a, event.STARTED),
            (a, event.SUCCEEDED),
            (b, event.QUEUED),
        ] == [(e.subject, e.type) for e in found]
        assert list(found[2:4]) == list(page)
        assert sorted(e.seq for e in found) == [e.seq for e in found]
        assert [] == await told(store, topic, owner=BOB)
        assert [] == await told(store, topic, owner=Owner("other", ANN.user))

    async def test_the_last_event_of_a_flow_or_batch_is_its_own(
        self, store: Store, hands: Hands
    ) -> None:
        course = await self.begin(hands, a_new_step("a"))
        batch = await self.open(hands, Members())
        flow = Topic(flow=(await course.flow()).seq)
        both = [flow, Topic(batch=(await batch.batch()).seq)]
        first = [await store.last_of(topic) for topic in both]
        await course.end("a")
        await batch.finish()
        last = [await store.last_of(topic) for topic in both]
        streams = [
            (await store.stream(ANN, after=0, limit=99, topic=topic)).events
            for topic in both
        ]

        assert [told[0].seq for told in streams] == first
        assert [told[-1].seq for told in streams] == last
        assert 0 == await store.last_of(Topic(flow=999))

    async def test_a_batchs_stream_is_its_own(self, store: Store, hands: Hands) -> None:
        job = a_new_job()
        batch = await self.open(hands, Members([job]))
        await self.open(hands, Members())
        await hands.end(job.id)
        await batch.finish()
        found = await batch.batch()
        topic = Topic(batch=found.seq)

        assert [
            (found.id, event.BATCH_OPENED),
            (found.id, event.BATCH_FINISHED),
        ] == await told(store, topic)
        assert [] == await told(store, topic, owner=BOB)

    async def test_a_tags_stream_is_of_the_jobs_that_have_it(
        self, store: Store, hands: Hands
    ) -> None:
        job = a_new_job(tags=("one", "a_b%"))
        await store.submit([job, a_new_job(tags=("axb%", "on")), a_new_job()])
        await store.submit([a_new_job(owner=BOB, tags=("one", "a_b%"))])
        await hands.end(job.id)
        expected = [
            (job.id, event.QUEUED),
            (job.id, event.STARTED),
            (job.id, event.SUCCEEDED),
        ]

        assert expected == await told(store, Topic(tag="one"))
        assert expected == await told(store, Topic(tag="a_b%"))
        assert [] == await told(store, Topic(tag="none"))
        assert [] == await told(store, Topic(tag="ONE"))

    async def test_everything_of_an_owner_is_its_jobs_flows_and_batches(
        self, store: Store, hands: Hands
    ) -> None:
        job, flow = a_new_job(), a_new_flow(a_new_step("a"))
        batch = await self.open(hands, Members([job], [flow]))
        await self.begin(hands, a_new_step("a", owner=BOB), owner=BOB)
        step = (await Course(hands, flow.id).jobs())["a"]
        seen = (await store.stream(ANN, after=0, limit=99)).events

        assert {
            ((await batch.batch()).id, event.BATCH_OPENED),
            (flow.id, event.FLOW_STARTED),
            (job.id, event.QUEUED),
            (step.id, event.QUEUED),
        } == {(e.subject, e.type) for e in seen}
        assert 2 == len((await store.stream(BOB, after=0, limit=99)).events)
        assert [] == list(
            (await store.stream(Owner("other", "ann"), after=0, limit=9)).events
        )

    async def test_queues_are_told_of_to_whoever_asks_for_them(
        self, store: Store, hands: Hands
    ) -> None:
        await store.declare([Queue("default", rate=Rate(1, timedelta(minutes=1)))])
        mine = [await submit(store) for _ in range(2)]
        await hands.take()
        await store.throttlings()
        queue = ("default", event.QUEUE_THROTTLED)
        jobs = {(job_id, event.QUEUED) for job_id in mine}

        assert queue not in await told(store, Topic())
        assert [queue] == await told(store, Topic(queues=True), owner=BOB)
        everything = await told(store, Topic(queues=True))
        assert {queue, *jobs} <= {*everything}
