"""Hostile files fail in their own stage with a reason; others go on."""

import psutil
import pytest

from tests.apps.documents.conftest import FAST, TEXT, UPLOADS, until
from tests.apps.documents.hostile import MEGABYTE, cheap, costly
from tests.apps.documents.test_kills import completed, deployed
from tests.extractors.documents import FOLDER

LIMIT = 500 * MEGABYTE


@pytest.mark.thorough
@pytest.mark.one_store
async def test_hostile_files_fail_with_a_reason_and_hold_nothing_back(start):
    documents = await start()
    hostile = cheap()
    batch_id = await documents.batch(len(hostile) + 1)
    ids = {
        name: await documents.upload(batch_id, content, name)
        for name, content in hostile.items()
    }
    good = await documents.upload(batch_id, TEXT)
    await documents.completed(batch_id)
    found = {name: await documents.file(each) for name, each in ids.items()}
    letters = (await documents.get(f"{UPLOADS}/dlq")).json()["entries"]
    attempts = {entry["fileId"]: entry["attempts"] for entry in letters}

    assert (await documents.file(good))["status"] == "ready"
    mislabelled = found.pop("mislabelled.pdf")
    assert mislabelled["status"] == "ready"
    assert mislabelled["contentType"].startswith("text/plain")
    for name, file in found.items():
        assert (file["status"], file["stage"]) == ("failed", "extracting"), name
        assert file["error"], name
    assert attempts[ids["corrupt.pdf"]] == 3, "it takes its three attempts"
    codes = {name: file["errorCode"] for name, file in found.items()}
    assert codes["empty.pdf"] == "EMPTY_FILE"
    assert codes["bomb.docx"] == "ARCHIVE_TOO_LARGE"
    assert attempts[ids["empty.pdf"]] == attempts[ids["bomb.docx"]] == 1


@pytest.mark.chaos
async def test_a_workers_memory_stays_bounded_over_hostile_files(
    tmp_path, store_url, record_property
):
    hostile = {**cheap(), **costly()}
    hostile["handbook.pdf"] = (FOLDER / "handbook.pdf").read_bytes()
    async with deployed(tmp_path, store_url, **FAST) as (fleet, client, _store):
        worker = psutil.Process(fleet.work().pid)
        batch_id = await client.batch(len(hostile))
        for name, content in hostile.items():
            await client.upload(batch_id, content, name)
        most = {"worker": 0, "child": 0}
        is_completed = completed(client, batch_id)

        async def look():
            most["worker"] = max(most["worker"], worker.memory_info().rss)
            for child in worker.children(recursive=True):
                try:
                    most["child"] = max(most["child"], child.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
            return await is_completed()

        await until(look, seconds=600)
        summary = (await client.summary(batch_id))["summary"]

    assert summary["ready"] >= 2, "the good ones are ready"
    assert summary["ready"] + summary["failed"] == len(hostile)
    assert most["worker"] < LIMIT
    assert most["child"] < LIMIT
    told = {name: f"{size // MEGABYTE} MB" for name, size in most.items()}
    record_property("told", f"documents, hostile files: {told}, {summary}")
