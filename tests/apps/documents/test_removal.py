"""Files and batches that are deleted, cancelled or erased."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import pytest

from backburner import Owner, StoreUnavailable
from backburner.engine.maintenance.erasure import Eraser
from backburner.engine.submit.submission import LOCAL
from backburner.ports.faults import NoFaults
from backburner_apps.documents import app, tables, work
from backburner_apps.documents.chunk_tables import chunks
from tests.apps.documents.conftest import TEXT, UPLOADS, running, until

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))"
"""Counts the sessions that wait for a lock of a session."""


@pytest.fixture
def held(monkeypatch):
    """Have extractions wait until they are let go."""
    gate, began = asyncio.Event(), asyncio.Event()
    good = work.extract_text

    async def wait(*args):
        began.set()
        await gate.wait()
        return await good(*args)

    monkeypatch.setattr(work, "extract_text", wait)
    gate.began = began
    return gate


async def blobs(documents, owner=LOCAL):
    return await documents.backburner.blobs("documents", owner).list()


@pytest.mark.one_store
async def test_a_deleted_file_takes_its_chunks_and_contents_along(start):
    documents = await start()
    batch_id = await documents.batch(2)
    gone = await documents.upload(batch_id)
    kept = await documents.upload(batch_id, b"Another text about storks.")
    await documents.completed(batch_id)
    assert len(await blobs(documents)) == 4
    answer = await documents.delete(f"{UPLOADS}/files/{gone}")
    assert answer.status_code == 204
    assert (await documents.get(f"{UPLOADS}/files/{gone}")).status_code == 404
    assert (await documents.delete(f"{UPLOADS}/files/{gone}")).status_code == 404

    async def removed():
        rows = await documents.rows(chunks)
        return {row.file_id for row in rows} == {kept} and len(
            await blobs(documents)
        ) == 2

    await until(removed)
    batch = await documents.show(batch_id)
    assert (batch["fileCount"], batch["summary"]["ready"]) == (1, 1)


async def test_a_deleted_batch_takes_everything_along(start):
    documents = await start()
    batch_id = await documents.batch(3)
    for n in range(2):
        await documents.upload(batch_id, b"A text about bird number %d." % n)
    await documents.request(batch_id)
    answer = await documents.delete(f"{UPLOADS}/batches/{batch_id}")
    assert answer.status_code == 204
    assert (await documents.get(f"{UPLOADS}/batches/{batch_id}")).status_code == 404

    async def empty():
        left = [await documents.rows(t) for t in (tables.files, chunks)]
        return not any(left) and not await blobs(documents)

    await until(empty)
    assert not await documents.rows(tables.batches)


async def test_a_file_that_is_deleted_while_it_is_processed_leaves_nothing(start, held):
    documents = await start()
    batch_id = await documents.batch(2)
    file_id = await documents.upload(batch_id)
    await held.began.wait()
    await documents.delete(f"{UPLOADS}/files/{file_id}")
    held.set()
    other = await documents.upload(batch_id)
    assert (await documents.ended(other))["status"] == "ready"
    batch = await documents.completed(batch_id)
    assert batch["summary"]["total"] == 1

    async def settled():
        return len(await blobs(documents)) == 2

    await until(settled)
    assert {row.file_id for row in await documents.rows(chunks)} == {other}


async def test_a_file_that_is_deleted_after_it_was_found_leaves_no_text(
    migrated_url, monkeypatch
):
    write = work._write

    async def delete(file_id):
        connection = await asyncpg.connect(migrated_url)
        await connection.execute("DELETE FROM documents_files WHERE id = $1", file_id)
        await connection.close()

    def deleted_before(tx, file_id, **values):
        """Write after another connection has deleted the file."""
        with ThreadPoolExecutor(1) as other:
            other.submit(asyncio.run, delete(file_id)).result()
        return write(tx, file_id, **values)

    monkeypatch.setattr(work, "_write", deleted_before)
    async with running(migrated_url) as documents:
        await documents.upload(await documents.batch())

        async def extracted():
            jobs = await documents.client.get("/v1/jobs", params={"state": "failed"})
            return [job["error"]["code"] for job in jobs.json()["items"]]

        assert ["FILE_DELETED"] == await until(extracted)
        assert 1 == len(await blobs(documents)), "only the content that was uploaded"


async def test_a_cancelled_batch_ends_and_keeps_what_is_ready(start, held):
    documents = await start(extract_at_once=1)
    batch_id = await documents.batch(5)
    held.set()
    ready = await documents.upload(batch_id)
    await documents.ended(ready)
    held.clear()
    held.began.clear()
    running = await documents.upload(batch_id)
    waiting = await documents.upload(batch_id)
    asked = await documents.request(batch_id)
    await held.began.wait()
    answer = await documents.post(f"{UPLOADS}/batches/{batch_id}/cancel")
    assert answer.status_code == 200
    batch = await documents.completed(batch_id)
    summary = batch["summary"]
    assert (summary["total"], summary["ready"], summary["failed"]) == (5, 1, 4)
    for file_id in (running, waiting, asked["fileId"]):
        file = await documents.file(file_id)
        assert (file["status"], file["errorCode"]) == ("failed", "CANCELLED")
    assert (await documents.ask_url(batch_id)).status_code == 409
    again = await documents.post(f"{UPLOADS}/batches/{batch_id}/cancel")
    assert again.status_code == 200
    held.set()


@pytest.mark.one_store
async def test_a_cancel_during_an_outage_is_an_error_and_can_be_repeated(
    start, held, monkeypatch
):
    documents = await start()
    batch_id = await documents.batch()
    file_id = await documents.upload(batch_id)
    await held.began.wait()
    cancel = f"{UPLOADS}/batches/{batch_id}/cancel"

    async def gone(*_args, **_options):
        raise StoreUnavailable("gone")

    with monkeypatch.context() as broken:
        broken.setattr(documents.backburner.engine.store, "cancel_flow", gone)
        refused = await documents.post(cancel)
    again = await documents.post(cancel)
    file = await documents.ended(file_id)
    held.set()

    assert [503, 200] == [refused.status_code, again.status_code]
    assert ("failed", "CANCELLED") == (file["status"], file["errorCode"])


@pytest.mark.one_store
async def test_a_delete_during_an_outage_leaves_nothing(start, held, monkeypatch):
    documents = await start()
    batch_id = await documents.batch()
    await documents.upload(batch_id)
    await held.began.wait()

    async def gone(*_args, **_options):
        raise StoreUnavailable("gone")

    with monkeypatch.context() as broken:
        broken.setattr(documents.backburner.engine.store, "cancel_flow", gone)
        deleted = await documents.delete(f"{UPLOADS}/batches/{batch_id}")
    held.set()

    async def empty():
        return not await documents.rows(chunks) and not await blobs(documents)

    assert 204 == deleted.status_code
    await until(empty)


async def test_a_file_whose_bytes_arrive_during_a_cancel_is_cancelled(migrated_url):
    async with running(migrated_url, works=False) as documents:
        batch_id = await documents.batch()
        asked = await documents.request(batch_id)
        other = await asyncpg.connect(migrated_url)
        pid = await other.fetchval("SELECT pg_backend_pid()")
        async with other.transaction():
            await other.execute(
                "UPDATE documents_files SET status = 'uploaded', version = version + 1"
            )
            cancel = documents.post(f"{UPLOADS}/batches/{batch_id}/cancel")
            cancelling = asyncio.create_task(cancel)
            await until(lambda: other.fetchval(WAITING, pid))
        await other.close()
        answer = await cancelling
        file = await documents.file(asked["fileId"])

    assert (200, 1) == (answer.status_code, answer.json()["summary"]["failed"])
    assert ("failed", "CANCELLED") == (file["status"], file["errorCode"])


@pytest.mark.one_store
async def test_an_erased_user_leaves_no_row_and_others_stay(start):
    documents = await start(keyed=True)
    ada, bob = await documents.key("ada"), await documents.key("bob")
    for user in (ada, bob):
        batch_id = await user.batch()
        await user.upload(batch_id, TEXT)
        await user.completed(batch_id)
    eraser = Eraser(documents.backburner.engine, {app.name: app.erase}, NoFaults())
    await eraser.run(Owner("default", "ada"), "erased_1", actor="tests", cancel=True)
    for table in (tables.files, tables.batches, chunks):
        assert {row.user for row in await documents.rows(table)} == {"bob"}
    assert not await blobs(documents, Owner("default", "ada"))
    assert len(await blobs(documents, Owner("default", "bob"))) == 2
