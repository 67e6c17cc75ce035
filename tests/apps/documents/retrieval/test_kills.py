"""A worker that is killed while it stores chunks leaves no duplicate chunk."""

import signal
import sys

from backburner_apps.documents.chunk_tables import chunks
from backburner_apps.documents.chunking import chunk_pages
from tests import warm
from tests.apps.documents.retrieval import conftest
from tests.apps.documents.retrieval.conftest import ADA, page

WORKER = """
import asyncio, sys
from backburner import Context
from backburner_apps.documents import chunk_store
from tests.apps.documents.retrieval import conftest

chunk_store.SLICE = 5
transact = Context.transact
written = 0

async def stopping(self, body, *args, **named):
    global written
    result = await transact(self, body, *args, **named)
    written += 1
    if written == 2:
        print("half", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    return result

Context.transact = stopping

async def main():
    beats = {"lease_seconds": 2, "beat_seconds": 0.2}
    async with conftest.opened(sys.argv[1], works=True, **beats):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_worker_killed_in_the_middle_leaves_no_duplicate(
    start, store_url, monkeypatch
):
    monkeypatch.setattr(conftest.chunk_store, "SLICE", 5)
    library = await start()
    await library.file(ADA, "f1")
    pages = [[f"Page {n} is about harbour number {n}.", n] for n in range(1, 21)]
    value = {"file": "f1", "batch": "b1", "pages": pages}
    ticket = await library.bb.submit(conftest.store, value, owner=ADA)
    command = [sys.executable, "-c", WORKER, store_url]
    pipes = {"stdin": warm.PIPE, "stdout": warm.PIPE, "text": True}
    with warm.Popen(command, **pipes) as worker:
        assert "ready\n" == worker.stdout.readline()
        assert "half\n" == worker.stdout.readline()
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert 10 == len(await library.rows(chunks))  # control: it was in the middle

    await library.bb.start_worker()
    await ticket.result(timeout=60)

    rows = sorted(await library.rows(chunks), key=lambda row: row["number"])
    expected = chunk_pages([page(*each) for each in pages])
    assert [part.text for part in expected] == [row["text"] for row in rows]
    assert [*range(20)] == [row["number"] for row in rows]
    assert 1 == len(await library.found(ADA, "harbour 7", limit=1))
    index = [result.page for result in (await library.search(ADA, "harbour")).results]
    assert len(index) == len({*index})
