"""A process killed at a tick of a schedule, on whatever line: the tick fires once."""

import pytest
import sqlalchemy as sa

from backburner.ports.store.maintenance import JobFilter
from backburner.stores.tables import schedules

FIRST = 1_735_689_600_000  # 2025-01-01T00:00Z
SECOND = 1_767_225_600_000  # a year later
LINES = [
    "schedule.firing",
    "transact.before_commit",
    "transact.after_commit",
    "schedule.fired",
]


@pytest.fixture
def node(fleet):
    def start(**settings):
        return fleet.serve("ticking", "--no-worker", **settings)

    return start


@pytest.fixture
def a_tick(client, eventually):
    """Have a tick be due once a process has planned, or wait until it is not."""

    async def affects(statement):
        found = await client.store.transact(
            lambda tx: tx.connection.execute(statement).all()
        )
        return bool(found)

    class Tick:
        async def comes(self, tick):
            due = schedules.update().values(next_at=tick).returning(schedules.c.name)
            await eventually(lambda: affects(due))

        async def is_over(self, tick):
            ahead = sa.select(schedules.c.name).where(schedules.c.next_at > tick)
            await eventually(lambda: affects(ahead))

    return Tick()


async def the_ticks(client):
    jobs = await client.store.jobs(
        JobFilter(tag="schedule:yearly"), before=None, limit=9
    )
    return [job.tags[1] for job in jobs]


@pytest.mark.parametrize("line", LINES)
async def test_a_tick_fires_once_whatever_line_the_process_dies_on(
    client, node, a_tick, line
):
    doomed = node(BACKBURNER_FAULT=line)
    await a_tick.comes(FIRST)
    code = await doomed.ended()
    node()
    await a_tick.is_over(FIRST)
    await a_tick.comes(SECOND)
    await a_tick.is_over(SECOND)

    assert 137 == code
    assert [f"tick:{SECOND}", f"tick:{FIRST}"] == await the_ticks(client)
