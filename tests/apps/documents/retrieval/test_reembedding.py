"""Another model embeds all files anew; then its vectors are the only ones."""

import asyncio

from backburner.testing.broker.acts import pause
from backburner_apps.documents.chunk_tables import vectors
from backburner_apps.documents.reembedding import Scope, drop_others, reembed
from tests.apps.documents.retrieval.conftest import ADA, BOB

MOCK = {"ai": ("mock",), "ai_embedding": ("mock",), "works": True}


def _by_another_model(tx):
    tx.connection.execute(vectors.update().values(model="old/model"))


async def test_batches_embed_with_the_new_model_and_drop_the_old_vectors(start):
    library = await start(**MOCK)
    await library.add(ADA, "f1", "Blue whales feed on krill.", "A bridge.")
    await library.add(ADA, "f2", "Blue whales feed on krill.")
    await library.add(BOB, "f3", "Sourdough rises slowly.")
    await library.bb.transact(_by_another_model)
    assert "keyword" == (await library.search(ADA, "whales")).mode

    scope = Scope(tenant="default")
    ids = await (await library.bb.submit(reembed, scope, owner=ADA)).result()

    assert 2 == len({*ids})
    async with asyncio.timeout(60):
        while {row["model"] for row in await library.rows(vectors)} != {"mock/mock"}:
            await pause()
    assert [4, 3, 2] == await library.counts()
    assert "hybrid" == (await library.search(ADA, "whales")).mode
    again = await library.bb.submit(reembed, Scope(tenant="default", user="bob"))
    assert 1 == len(await again.result())


async def test_the_model_of_the_batch_stays_whatever_the_worker_is_set_to(start):
    library = await start(**MOCK)
    await library.add(ADA, "f1", "Blue whales feed on krill.", "A bridge.")
    await library.bb.transact(_by_another_model)
    await library.embed(ADA, "f1")

    await (await library.bb.submit(drop_others, "old/model", owner=ADA)).result()

    assert {"old/model"} == {row["model"] for row in await library.rows(vectors)}
