"""Events of applications: stored with their transaction, visible to their readers."""

from contextlib import suppress

from backburner.domain.events.event import RESET
from backburner.domain.events.publication import Publication, publication
from backburner.domain.jobs.job import Owner, Tenant, Visibility
from backburner.ports.store import Store
from backburner.ports.store.events import Topic
from backburner.ports.store.transactions import Tx
from backburner.testing.samples import ANN, BOB, NOON
from backburner.testing.store.acts import DAY, WithWorkers, submit

FILES = Topic(name="files")


def a_note(topic: str = "files", to: Visibility = ANN, **data: int) -> Publication:
    """Return an event of an application."""
    return publication(topic, "file:changed", data, to=to, at=NOON)


async def publish(store: Store, *notes: Publication) -> None:
    """Store events in their own transaction."""
    await store.transact(lambda tx: tx.publish(notes))


async def read(store: Store, owner: Visibility, topic: Topic) -> list[dict[str, int]]:
    """Return the data of each event."""
    page = await store.stream(owner, after=0, limit=99, topic=topic)
    return [dict(event.data) for event in page.events]


class PublicationConformance(WithWorkers):
    """`Tx.publish`: one transaction, one owner, one topic."""

    async def test_an_event_is_told_as_it_was_published(self, store: Store) -> None:
        await publish(store, a_note(size=3))

        [told] = (await store.stream(ANN, after=0, limit=9, topic=FILES)).events

        assert ("files", "files", 0, "file:changed") == (
            *(told.topic, told.subject, told.n, told.type),
        )
        assert (NOON, {"size": 3}) == (told.at, told.data)
        assert told.seq == await store.latest()

    async def test_an_event_of_a_transaction_that_fails_is_not_there(
        self, store: Store
    ) -> None:
        def body(tx: Tx) -> None:
            tx.publish([a_note(n=1)])
            raise LookupError

        with suppress(LookupError):
            await store.transact(body)
        await publish(store, a_note(n=2))

        assert [{"n": 2}] == await read(store, ANN, FILES)

    async def test_a_topic_has_its_own_events_in_order_among_all(
        self, store: Store
    ) -> None:
        await publish(store, a_note(n=1), a_note("other", n=2))
        job = await submit(store, owner=ANN)
        await publish(store, a_note(n=3))

        page = await store.stream(ANN, after=0, limit=1, topic=FILES)
        rest = await store.stream(ANN, after=page.upto, limit=9, topic=FILES)
        everything = (await store.stream(ANN, after=0, limit=9)).events

        assert [{"n": 1}] == [event.data for event in page.events]
        assert [{"n": 3}] == [event.data for event in rest.events]
        assert (False, True) == (page.is_last, rest.is_last)
        assert ["files", "other", job, "files"] == [e.subject for e in everything]

    async def test_nobody_is_told_of_anothers_topic(self, store: Store) -> None:
        await publish(store, a_note(n=1), a_note(to=BOB, n=2))
        elsewhere = Owner("other", ANN.user)

        for topic in (FILES, Topic()):
            assert [{"n": 1}] == await read(store, ANN, topic)
            assert [{"n": 2}] == await read(store, BOB, topic)
            assert [] == await read(store, elsewhere, topic)
            assert [] == await read(store, Tenant("other"), topic)
            assert [{"n": 1}, {"n": 2}] == await read(store, Tenant(ANN.tenant), topic)

    async def test_what_is_published_to_a_tenant_is_told_to_all_its_users(
        self, store: Store
    ) -> None:
        await publish(store, a_note(n=1), a_note(to=Tenant(ANN.tenant), n=2))

        for topic in (FILES, Topic()):
            assert [{"n": 1}, {"n": 2}] == await read(store, ANN, topic)
            assert [{"n": 2}] == await read(store, BOB, topic)
            assert [{"n": 1}, {"n": 2}] == await read(store, Tenant(ANN.tenant), topic)
            assert [] == await read(store, Owner("other", ANN.user), topic)

    async def test_old_events_are_forgotten_and_an_older_cursor_is_told(
        self, store: Store
    ) -> None:
        old = [a_note(n=n) for n in range(3)]
        young = a_note(n=3)._replace(at=NOON + DAY)
        await publish(store, *old)
        seqs = [e.seq for e in (await store.stream(ANN, after=0, limit=9)).events]
        await publish(store, young)
        now = NOON + 2 * DAY
        gone = [
            await store.forget_published(before=NOON, now=now, limit=2)
            for _ in range(3)
        ]

        late = (await store.stream(ANN, after=seqs[0], limit=9, topic=FILES)).events
        told = (await store.stream(ANN, after=late[0].seq, limit=9, topic=FILES)).events

        assert [2, 1, 0] == gone
        assert (RESET, seqs[2], {"after": seqs[0]}, now) == (
            *(late[0].type, late[0].seq, late[0].data, late[0].at),
        )
        assert [{"n": 3}] == [e.data for e in late[1:]] == [e.data for e in told]
        assert [{"n": 3}] == await read(store, ANN, FILES), "0 is the oldest there is"

    async def test_a_cursor_is_told_once_also_if_nothing_is_left(
        self, store: Store
    ) -> None:
        await publish(store, a_note(n=1), a_note(n=2))
        first, last = (await store.stream(ANN, after=0, limit=9)).events
        await store.forget_published(before=NOON, now=NOON, limit=9)

        page = await store.stream(ANN, after=first.seq, limit=9, topic=FILES)
        rest = await store.stream(ANN, after=page.upto, limit=9, topic=FILES)

        assert [(RESET, last.seq)] == [(e.type, e.seq) for e in page.events]
        assert [] == list(rest.events)
