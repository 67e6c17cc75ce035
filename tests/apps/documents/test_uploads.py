"""Batches, URLs and confirmations over HTTP, and what is refused."""

import asyncio
from base64 import b64encode
from itertools import pairwise
from urllib.parse import urlsplit

import pytest

from backburner_apps.documents import tables
from tests.apps.documents.conftest import TEXT, UPLOADS, md5, until


async def test_a_file_becomes_ready_and_every_change_is_published(start):
    documents = await start()
    batch_id = await documents.batch()
    asked = await documents.request(batch_id)
    assert asked["status"] == "pending_upload"
    assert asked["headers"] == {}
    assert (await documents.show(batch_id))["status"] == "pending_upload"
    assert (await documents.put(asked)).status_code == 200
    assert (await documents.file(asked["fileId"]))["status"] == "uploaded"
    answer = await documents.confirm(asked, md5=md5(TEXT))
    assert answer.json() == {"fileId": asked["fileId"], "status": "queued"}
    file = await documents.ended(asked["fileId"])
    batch = await documents.completed(batch_id)
    [completed] = await documents.until_event(batch_id, "batch:completed")
    changes = await documents.path_of(batch_id, asked["fileId"])
    progress = await documents.events(batch_id, "batch:progress")

    assert file["status"] == "ready"
    assert file["fileName"] == "heron.txt"
    assert file["contentType"].startswith("text/plain")
    assert (file["size"], file["chunkCount"]) == (len(TEXT), 1)
    assert file["extractedImages"] == {"count": 0, "pages": []}
    assert changes == [
        ("pending_upload", "uploaded"),
        ("uploaded", "queued"),
        ("queued", "extracting"),
        ("extracting", "chunking"),
        ("chunking", "embedding"),
        ("embedding", "ready"),
    ]
    zeros = dict.fromkeys(("queued", "extracting", "chunking", "embedding"), 0)
    assert batch["summary"] == {"total": 1, **zeros, "ready": 1, "failed": 0}
    assert (batch["fileCount"], batch["processedCount"]) == (1, 1)
    assert batch["completedAt"] >= batch["createdAt"]
    assert completed == {
        "batchId": batch_id,
        "summary": {"total": 1, "ready": 1, "failed": 0},
    }
    assert progress[-1][1] == {"batchId": batch_id, **batch["summary"]}
    [line] = documents.lines("Batch processing completed")
    assert (line["batchId"], line["total"], line["ready"]) == (batch_id, 1, 1)


@pytest.mark.one_store
async def test_progress_is_published_at_most_once_a_second(start):
    documents = await start()
    batch_id = await documents.batch(8)
    for n in range(8):
        await documents.upload(batch_id, b"a text of the file %d" % n)
    await documents.until_event(batch_id, "batch:completed")
    from backburner.stores.tables import events  # noqa: PLC0415

    rows = [
        row.at
        for row in sorted(await documents.rows(events), key=lambda row: row.seq)
        if row.type == "batch:progress" and row.topic == f"batch:{batch_id}"
    ]
    apart = [later - before for before, later in pairwise(rows)]
    assert apart
    assert all(span >= 1000 for span in apart), apart
    last = (await documents.events(batch_id, "batch:progress"))[-1][1]
    assert last["ready"] == 8


@pytest.mark.one_store
async def test_steps_are_found_by_their_tags(start):
    documents = await start()
    batch_id = await documents.batch()
    file_id = await documents.upload(batch_id)
    await documents.completed(batch_id)
    queues = {
        f"extract:{file_id}": "file-extract",
        f"chunk:{file_id}": "file-chunk",
        f"embed:{file_id}": "file-embed",
        f"batch:{batch_id}": "batch-completion",
    }
    for tag, queue in queues.items():
        found = (await documents.get("/v1/jobs", tag=tag)).json()
        jobs = [job for job in found["items"] if job["queue"] == queue]
        assert jobs, tag


@pytest.mark.one_store
async def test_wrong_requests_are_refused(start):
    documents = await start(works=False, file_limit=1000, batch_limit=3)
    for count in (0, -1, 4, "2", None, 1.5):
        answer = await documents.post(f"{UPLOADS}/batches", {"fileCount": count})
        assert answer.status_code == 400, count
    batch_id = await documents.batch(2)
    for name, size in [("", 1), ("a" * 256, 1), ("a\nb", 1), ("a", -1), ("a", "1")]:
        assert (await documents.ask_url(batch_id, name, size)).status_code == 400
    large = await documents.ask_url(batch_id, "a", 1001)
    assert (large.status_code, large.json()["code"]) == (413, "FILE_TOO_LARGE")
    asked = await documents.request(batch_id)
    for wrong in ("abc", "zz" * 16):
        answer = await documents.confirm(asked, md5=wrong)
        assert answer.status_code == 400
        assert "md5sum FILE" in answer.text
    await documents.request(batch_id)
    full = await documents.ask_url(batch_id)
    assert (full.status_code, full.json()["code"]) == (409, "BATCH_FULL")


@pytest.mark.one_store
async def test_bodies_are_read_as_json_whatever_their_type(start):
    documents = await start(works=False)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await documents.client.post(
        f"{UPLOADS}/batches", content=b'{"fileCount": 1}', headers=form
    )
    assert answer.status_code == 201


async def test_the_last_place_of_a_batch_is_given_once(start):
    documents = await start(works=False)
    batch_id = await documents.batch(3)
    answers = await asyncio.gather(*(documents.ask_url(batch_id) for _ in range(8)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [201] * 3 + [409] * 5


@pytest.mark.one_store
async def test_a_confirmation_without_bytes_is_refused(start):
    documents = await start(works=False)
    asked = await documents.request(await documents.batch())
    answer = await documents.confirm(asked)
    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_UPLOADED")
    await documents.put(asked)
    assert (await documents.confirm(asked)).status_code == 200


@pytest.mark.one_store
@pytest.mark.parametrize("wrong", [{"size": 3}, {"md5": "0" * 32}])
async def test_other_bytes_than_announced_are_refused_and_may_be_sent_again(
    start, wrong
):
    documents = await start(works=False)
    asked = await documents.request(await documents.batch())
    await documents.put(asked)
    answer = await documents.confirm(asked, **{"size": len(TEXT), **wrong})
    assert (answer.status_code, answer.json()["code"]) == (422, "CONTENT_MISMATCH")
    assert (await documents.file(asked["fileId"]))["status"] == "pending_upload"
    assert (await documents.confirm(asked)).json()["code"] == "NOT_UPLOADED"
    await documents.put(asked)
    assert (await documents.confirm(asked, md5=md5(TEXT))).status_code == 200


@pytest.mark.one_store
async def test_a_repeated_confirmation_gives_the_same_answer(start):
    documents = await start()
    batch_id = await documents.batch()
    asked = await documents.request(batch_id)
    await documents.put(asked)
    base64 = b64encode(bytes.fromhex(md5(TEXT))).decode()
    first = await documents.confirm(asked, md5=base64)
    await documents.completed(batch_id)
    again = await documents.confirm(asked, md5=md5(TEXT))
    without = await documents.confirm(asked)
    assert first.json() == again.json() == without.json()
    for wrong in ({"size": 1}, {"md5": "0" * 32}):
        answer = await documents.confirm(asked, **{"size": len(TEXT), **wrong})
        assert (answer.status_code, answer.json()["code"]) == (409, "NOT_CONFIRMABLE")
    jobs = (await documents.get("/v1/jobs", tag=f"extract:{asked['fileId']}")).json()
    assert len(jobs["items"]) == 1


@pytest.mark.one_store
async def test_an_md5_given_only_later_is_compared_with_the_kept_bytes(start):
    documents = await start(works=False)
    asked = await documents.request(await documents.batch())
    await documents.put(asked)
    assert (await documents.confirm(asked)).status_code == 200
    assert (await documents.confirm(asked, md5=md5(TEXT))).status_code == 200
    assert (await documents.confirm(asked, md5="0" * 32)).status_code == 409


async def test_concurrent_confirmations_start_one_flow(start):
    documents = await start(works=False)
    batch_id = await documents.batch()
    asked = await documents.request(batch_id)
    await documents.put(asked)
    answers = await asyncio.gather(
        *(documents.confirm(asked, md5=md5(TEXT)) for _ in range(6))
    )
    assert {200} == {answer.status_code for answer in answers}
    flows = (await documents.get("/v1/flows", tag=f"batch:{batch_id}")).json()
    assert len(flows["items"]) == 1
    path = await documents.path_of(batch_id, asked["fileId"])
    assert path == [("pending_upload", "uploaded"), ("uploaded", "queued")]


@pytest.mark.one_store
async def test_a_url_used_again_after_the_confirmation_changes_nothing(start):
    documents = await start(works=False)
    batch_id = await documents.batch()
    asked = await documents.request(batch_id)
    await documents.put(asked)
    await documents.confirm(asked, md5=md5(TEXT))
    kept = await documents.row(asked["fileId"])
    other = TEXT.replace(b"heron", b"stork")
    assert (await documents.put(asked, other)).status_code == 200
    assert await documents.row(asked["fileId"]) == kept
    from backburner.engine.submit.submission import LOCAL  # noqa: PLC0415

    blobs = documents.backburner.blobs("documents", LOCAL)
    assert TEXT == b"".join([piece async for piece in blobs.read(kept.blob)])
    assert (await documents.confirm(asked, md5=md5(other))).status_code == 409


@pytest.mark.one_store
async def test_a_url_takes_only_what_it_was_signed_for(start):
    documents = await start(works=False)
    asked = await documents.request(await documents.batch(2))
    other = await documents.request(asked["batchId"])
    url = asked["uploadUrl"]
    mixed = f"{other['uploadUrl'].split('?')[0]}?{urlsplit(url).query}"
    for wrong in (url[:-2] + "xx", mixed, url.replace("size=60", "size=59")):
        assert wrong != url
        answer = await documents.client.put(wrong, content=TEXT)
        assert (answer.status_code, answer.json()["code"]) == (403, "LINK_REFUSED")
    assert (await documents.client.put(url, content=TEXT + b"x")).status_code == 403
    assert (await documents.client.put(url, content=TEXT[1:])).status_code == 403
    assert (await documents.confirm(asked)).json()["code"] == "NOT_UPLOADED"


async def test_a_file_that_is_not_confirmed_in_time_fails_and_its_batch_ends(start):
    documents = await start(url_seconds=1)
    batch_id = await documents.batch(4)
    confirmed = await documents.upload(batch_id)
    asked = await documents.request(batch_id)
    sent = await documents.request(batch_id)
    await documents.put(sent)
    await until(overdue(documents, 3))
    await end_overdue(documents)
    batch = await documents.completed(batch_id)

    assert (await documents.file(confirmed))["status"] == "ready"
    for late in (asked, sent):
        file = await documents.file(late["fileId"])
        assert (file["status"], file["errorCode"]) == ("failed", "UPLOAD_EXPIRED")
        assert (await documents.put(late)).status_code == 403
        answer = await documents.confirm(late)
        assert (answer.status_code, answer.json()["code"]) == (409, "NOT_CONFIRMABLE")
    summary = batch["summary"]
    assert (summary["total"], summary["ready"], summary["failed"]) == (4, 1, 3)
    closed = await documents.ask_url(batch_id)
    assert (closed.status_code, closed.json()["code"]) == (409, "BATCH_FULL")
    letters = (await documents.get(f"{UPLOADS}/dlq")).json()
    assert letters == {"entries": [], "total": 0}, "nothing failed in a stage"


@pytest.mark.one_store
async def test_a_batch_without_any_request_ends(start):
    documents = await start(url_seconds=0.1)
    batch_id = await documents.batch(2)
    await until(overdue(documents, 0))
    await end_overdue(documents)
    batch = await documents.completed(batch_id)
    assert batch["summary"]["failed"] == 2


@pytest.mark.one_store
async def test_nothing_ends_before_its_time(start):
    documents = await start()
    batch_id = await documents.batch(2)
    asked = await documents.request(batch_id)
    await end_overdue(documents)
    assert (await documents.file(asked["fileId"]))["status"] == "pending_upload"
    assert (await documents.show(batch_id))["status"] == "pending_upload"


@pytest.mark.one_store
async def test_another_users_things_do_not_exist(start):
    documents = await start(keyed=True)
    ada, bob = await documents.key("ada"), await documents.key("bob")
    batch_id = await ada.batch(2)
    file_id = await ada.upload(batch_id, b"not a document \x00" * 3, "x.bin")
    asked = await ada.request(batch_id)
    await ada.ended(file_id)
    base, file = f"{UPLOADS}/batches/{batch_id}", f"{UPLOADS}/files/{file_id}"
    answers = [
        await bob.get(base),
        await bob.get(file),
        await bob.post(f"{base}/cancel"),
        await bob.delete(base),
        await bob.delete(file),
        await bob.ask_url(batch_id),
        await bob.confirm(asked),
        await bob.post(f"{UPLOADS}/dlq/{file_id}/retry"),
    ]
    assert {404} == {answer.status_code for answer in answers}
    assert (await bob.get(f"{UPLOADS}/batches")).json()["batches"] == []
    assert (await bob.get(f"{UPLOADS}/files")).json()["files"] == []
    assert (await bob.get(f"{UPLOADS}/dlq")).json()["total"] == 0
    assert (await bob.post(f"{UPLOADS}/dlq/retry-all")).json() == {"results": []}
    assert (await ada.get(file)).status_code == 200
    assert (await ada.get(f"{UPLOADS}/dlq")).json()["total"] == 1


@pytest.mark.one_store
async def test_batches_and_files_are_listed_page_by_page(start):
    documents = await start(works=False)
    ids = [await documents.batch(3) for _ in range(3)]
    files = [(await documents.request(ids[0]))["fileId"] for _ in range(3)]
    first = (await documents.get(f"{UPLOADS}/batches", limit=2)).json()
    rest = (
        await documents.get(f"{UPLOADS}/batches", limit=2, cursor=first["nextCursor"])
    ).json()
    listed = [batch["batchId"] for batch in first["batches"] + rest["batches"]]
    assert listed == ids[::-1]
    assert rest["nextCursor"] is None
    found = (await documents.get(f"{UPLOADS}/files", batchId=ids[0])).json()["files"]
    assert [file["fileId"] for file in found] == files[::-1]
    assert (
        [] == (await documents.get(f"{UPLOADS}/files", batchId=ids[1])).json()["files"]
    )


@pytest.mark.one_store
async def test_a_file_name_is_kept_as_it_is_and_reaches_no_log(start):
    documents = await start()
    batch_id = await documents.batch()
    name = "../../etc/passwd <script>secret.txt"
    file_id = await documents.upload(batch_id, TEXT, name)
    await documents.completed(batch_id)
    assert (await documents.file(file_id))["fileName"] == name
    assert "passwd" not in documents.log.getvalue()


def overdue(documents, count):
    """Say whether the time of so many files and of every batch is over."""

    async def look():
        now = documents.backburner.engine.now()
        files = await documents.rows(tables.files)
        late = [row for row in files if row.expires_at <= now]
        batches = await documents.rows(tables.batches)
        last = max(row.requested_at for row in batches)
        return len(late) >= count and last + 1000 <= now

    return look


async def end_overdue(documents):
    """Do now what the schedule does every half minute."""
    from backburner_apps.documents.upkeep import end_overdue as job  # noqa: PLC0415

    ticket = await documents.backburner.submit(job, None)
    return await ticket.result()
