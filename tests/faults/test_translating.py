"""Engine events are translated once, whatever line a process dies on."""

import pytest
import sqlalchemy as sa
from translating import TYPES

from backburner.engine.submit.submission import LOCAL
from backburner.ports.store.events import Topic
from backburner.stores.tables import events

LINES = [
    "translate.read",
    "translate.published",
    "transact.before_commit",
    "transact.after_commit",
]
TOLD = Topic(name="told")


@pytest.fixture
def translations(client, eventually):
    """Read what is to be translated, and what was."""

    async def happened():
        query = sa.select(events.c.seq).where(events.c.type.in_(TYPES))
        rows = await client.store.read(lambda c: c.execute(query).scalars().all())
        return sorted(rows)

    async def told():
        page = await client.store.stream(LOCAL, after=0, limit=999, topic=TOLD)
        return sorted(event.data["seq"] for event in page.events)

    class Translations:
        async def begin(self):
            """Wait until some were made."""
            await eventually(told)

        async def all_made(self):
            """Wait until there are as many as events; return both."""

            async def is_so():
                return len(await told()) >= len(await happened())

            await eventually(is_so)
            return await happened(), await told()

        async def the_last_is_made(self):
            """Wait until the newest event was translated; return all."""

            async def is_so():
                return (await happened())[-1] in await told()

            await eventually(is_so)
            return await happened(), await told()

    return Translations()


@pytest.mark.parametrize("line", LINES)
async def test_each_event_is_translated_once_whatever_line_a_process_dies_on(
    client, fleet, translations, line
):
    doomed = await fleet.worker("translating", BACKBURNER_FAULT=line).ready()
    jobs = await client.submit("work", *[{}] * 5)
    code = await doomed.ended()
    fleet.worker("translating")
    jobs += await client.submit("work", *[{}] * 5)
    await client.ended(jobs)
    happened, told = await translations.all_made()

    assert 137 == code
    assert happened == told
    assert len(happened) >= 2 * len(jobs)


async def test_two_processes_one_of_them_killed_translate_each_event_once(
    client, fleet, translations
):
    killed, _ = [await fleet.worker("translating").ready() for _ in range(2)]
    jobs = await client.submit("work", *[{"seconds": 0.02}] * 40)
    await translations.begin()
    killed.kill()
    fleet.worker("translating")
    jobs += await client.submit("work", *[{"seconds": 0.02}] * 40)
    await client.ended(jobs)
    happened, told = await translations.all_made()

    assert happened == told
    assert len(happened) >= 2 * len(jobs)


async def test_with_the_mark_moved_before_the_translation_events_are_missed(
    client, fleet, translations
):
    """The control of the tests above."""
    line = "translate.published"
    doomed = await fleet.worker("marks_first", BACKBURNER_FAULT=line).ready()
    jobs = await client.submit("work", *[{}] * 5)
    await doomed.ended()
    fleet.worker("translating")
    jobs += await client.submit("work", {})
    await client.ended(jobs)
    happened, told = await translations.the_last_is_made()

    assert {*told} < {*happened}
