"""Many files, many users, several processes, and an object store."""

import asyncio
import os
from collections import Counter

import pytest

from backburner_apps.documents.chunk_tables import chunks
from backburner_apps.documents.tables import files
from tests.apps.documents.conftest import TEXT, UPLOADS, until

USERS, FILES, HUNDRED = 5, 5, 100
STATES = ("uploaded", "queued", "extracting", "chunking", "embedding", "ready")


async def test_batches_of_five_users_at_once(start):
    documents = await start(keyed=True)
    users = [await documents.key(f"user-{n}") for n in range(USERS)]

    async def fill(n, user):
        batch_id = await user.batch(FILES)
        texts = [f"User {n} writes file {m} about rivers." for m in range(FILES)]
        names = [f"{m}.md" for m in range(FILES)]
        uploads = map(user.upload, [batch_id] * FILES, map(str.encode, texts), names)
        return batch_id, await asyncio.gather(*uploads)

    filled = await asyncio.gather(*map(fill, range(USERS), users))
    for user, (batch_id, ids) in zip(users, filled, strict=True):
        batch = await user.completed(batch_id)
        assert batch["summary"]["ready"] == FILES
        events = await documents.until_event(batch_id, "batch:completed")
        assert len(events) == 1
        for file_id in ids:
            path = await documents.path_of(batch_id, file_id)
            assert [to for _, to in path][-4:] == [
                *("extracting", "chunking", "embedding", "ready")
            ]
    rows = await documents.rows(chunks)
    assert len(rows) == len({row.file_id for row in rows}) == USERS * FILES


@pytest.mark.chaos
async def test_a_batch_of_a_hundred_files(start, record_property):
    documents = await start()
    batch_id = await documents.batch(HUNDRED)
    kinds = ("txt", "md", "html", "csv")
    contents = {
        f"{n}.{kinds[n % len(kinds)]}": f"File {n} says that river {n} is long."
        for n in range(HUNDRED)
    }
    ids = {
        await documents.upload(batch_id, content.encode(), name): content
        for name, content in contents.items()
    }
    batch = await documents.completed(batch_id)
    [ended] = await documents.until_event(batch_id, "batch:completed")
    rows = await documents.rows(chunks)
    changes = await documents.events(batch_id, "file:status-changed")

    assert {"total": HUNDRED, "ready": HUNDRED, "failed": 0} == ended["summary"]
    assert HUNDRED == batch["processedCount"] == batch["summary"]["ready"]
    assert ids == {row.file_id: row.text for row in rows}
    assert HUNDRED == len(rows), "a chunk of each, and no other"
    told = Counter(data["fileId"] for _, data in changes)
    assert dict.fromkeys(ids, len(STATES)) == told, "each change, once"
    waits = sorted(
        row.updated_at - row.confirmed_at for row in await documents.rows(files)
    )
    record_property("told", f"documents: 100 files, p95 {waits[94]} ms to ready")


async def test_two_processes_publish_each_change_once(start):
    one = await start(works=True)
    two = await start(works=True)
    batch_id = await one.batch(6)
    ids = [
        await (one, two)[n % 2].upload(batch_id, b"a text of file %d" % n)
        for n in range(6)
    ]
    await two.completed(batch_id)
    for file_id in ids:
        path = await one.path_of(batch_id, file_id)
        assert len(path) == len(set(path)) == 6
        assert [before for before, _ in path[1:]] == [to for _, to in path[:-1]]
    assert 1 == len(await one.events(batch_id, "batch:completed"))


@pytest.mark.one_store
async def test_the_same_file_again_embeds_nothing_new(start):
    documents = await start(ai_embedding=("mock",))
    batch_id = await documents.batch(2)
    first = await documents.upload(batch_id)
    await documents.ended(first)
    second = await documents.upload(batch_id)
    await documents.completed(batch_id)
    found = {}
    for file_id in (first, second):
        answer = await documents.get("/v1/jobs", tag=f"embed:{file_id}")
        [job] = answer.json()["items"]
        result = await documents.get(f"/v1/jobs/{job['id']}/result")
        found[file_id] = result.json()
    assert found == {first: 1, second: 0}


@pytest.mark.one_store
async def test_on_an_object_store_a_file_is_uploaded_when_it_is_confirmed(start):
    endpoint = os.environ.get("BACKBURNER_TEST_S3_URL")  # noqa: TID251 - the servers'
    if not endpoint:
        missing = "BACKBURNER_TEST_S3_URL is not set: run the tests by `make test`"
        is_ci = os.environ.get("CI")  # noqa: TID251 - there nothing may be missing
        pytest.fail(missing) if is_ci else pytest.skip(missing)
    bucket = await made_bucket(endpoint)
    documents = await start(
        blobs=f"s3://test:test@{bucket}/files?region=us-east-1&endpoint={endpoint}"
    )
    batch_id = await documents.batch()
    asked = await documents.request(batch_id)
    assert asked["uploadUrl"].startswith(endpoint), "the client talks to the bucket"
    assert (await documents.confirm(asked)).json()["code"] == "NOT_UPLOADED"
    assert (await documents.put(asked)).status_code == 200
    assert (await documents.file(asked["fileId"]))["status"] == "pending_upload"
    assert (await documents.confirm(asked)).status_code == 200
    assert (await documents.ended(asked["fileId"]))["status"] == "ready"
    path = await documents.path_of(batch_id, asked["fileId"])
    assert path[:2] == [("pending_upload", "uploaded"), ("uploaded", "queued")]
    await documents.put(asked, TEXT.replace(b"heron", b"stork"))
    again = await documents.confirm(asked)
    assert again.json() == {"fileId": asked["fileId"], "status": "queued"}


async def made_bucket(endpoint):
    import secrets  # noqa: PLC0415

    import boto3  # noqa: PLC0415

    name = f"documents-{secrets.token_hex(4)}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - moto's
    )
    await asyncio.to_thread(client.create_bucket, Bucket=name)
    return name


@pytest.mark.one_store
async def test_metrics_and_openapi_know_the_application(start):
    documents = await start()
    batch_id = await documents.batch(2)
    await documents.upload(batch_id)
    await documents.upload(batch_id, b"", "empty.txt")
    await documents.completed(batch_id)

    async def counted():
        text = (await documents.get("/metrics")).text
        wanted = (
            'documents_dead_letters_total{code="EMPTY_FILE",stage="extracting"}',
            "documents_ready_seconds_count",
            'documents_stages_started_total{stage="embedding"}',
        )
        return all(name in text for name in wanted)

    await until(counted)
    paths = (await documents.get("/openapi.json")).json()["paths"]
    assert f"{UPLOADS}/batches/{{batch_id}}/upload-urls" in paths
