"""Jobs of a queue with a policy of its own are marked when they are submitted."""

from datetime import timedelta

import sqlalchemy as sa

from backburner import App, Backburner, Context, Flow, Keep, Queue, capability
from backburner.ports.store.maintenance import Retention
from backburner.stores.tables import flows, jobs

KEEP = Keep(succeeded=timedelta(hours=1))


@capability("brief", queue="brief")
async def brief(_ctx: Context, value: int) -> int:
    return value


@capability("usual", queue="usual")
async def usual(_ctx: Context, value: int) -> int:
    return value


app = App("keeping", capabilities=[brief, usual], queues=[Queue("brief", keep=KEEP)])


async def marks(bb, column):
    query = sa.select(column).order_by(column.table.c.seq)
    return await bb.read(lambda view: view.connection.execute(query).scalars().all())


async def test_only_jobs_of_such_a_queue_are_in_its_index(home_url):
    async with Backburner(store=home_url, apps=[app]) as bb:
        await bb.submit(brief, 1)
        await bb.submit(brief, 1, idempotency_key="k")
        await bb.submit(usual, 1)
        batch = await bb.open_batch(expected=1)
        await batch.add(jobs=[(brief, 1)])

        assert [1, 2, None, None] == await marks(bb, jobs.c.kept)


async def test_a_flow_is_marked_by_the_queues_of_its_steps(home_url):
    async with Backburner(store=home_url, apps=[app]) as bb:
        for steps in ([brief, usual], [usual, usual]):
            flow = Flow()
            for number, step in enumerate(steps):
                flow.add(step, number, name=f"s{number}")
            await bb.submit_flow(flow)

        assert ["\nbrief\nusual", None] == await marks(bb, flows.c.kept)
        assert [None] * 4 == await marks(bb, jobs.c.kept)


async def test_a_worker_declares_the_policy_and_upkeep_goes_by_it(home_url):
    async with Backburner(store=home_url, apps=[app]) as bb:
        await bb.start_worker()
        gone, left = await bb.submit(brief, 1), await bb.submit(usual, 1)
        assert (1, 1) == (await gone.result(), await left.result())
        store = bb.engine.store
        later = await store.read_clock() + 2 * 3_600_000

        pruned = await store.prune(keep=Retention(), now=later, limit=10)

        assert [gone.id] == list(pruned)
