"""`backburner move` takes batches, files, chunks, vectors and their index along."""

import sys

import sqlalchemy as sa

from backburner_apps.documents.rows import all_tables
from tests import warm
from tests.apps.documents.conftest import running

SECONDS = 120
MODEL = {"ai_embedding": ("mock",)}
HERON = b"The heron stands in the shallow water and waits for a fish.\n"
BRIDGE = b"The bridge over the river was repaired after the flood.\n"
LATER = b"The owl flies without a sound and hunts at night.\n"


def move(source, target):
    ended = warm.run(
        [sys.executable, "-m", "backburner", "move", "--from", source, "--to", target],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert 0 == ended.returncode, ended.stderr
    assert "left behind" not in ended.stderr, "indexes are made anew"


async def rows_of(documents):
    """Return the rows of all tables of the application."""

    def look(view):
        return {
            table.name: sorted(
                tuple(row) for row in view.connection.execute(sa.select(table))
            )
            for table in all_tables()
        }

    return await documents.backburner.read(look)


async def found(documents, text):
    answer = (await documents.get("/api/v2/search", q=text)).json()
    return answer["mode"], [each["fileName"] for each in answer["results"]]


async def uploaded(documents, **contents):
    batch_id = await documents.batch(len(contents))
    for name, content in contents.items():
        await documents.upload(batch_id, content, f"{name}.txt")
    return await documents.completed(batch_id)


async def test_documents_move_to_postgres_and_back(tmp_path, postgres_url):
    first, back = (f"sqlite:///{tmp_path}/{name}.db" for name in ("first", "back"))
    blobs = {"blobs": (tmp_path / "blobs").as_uri()}
    async with running(first, **MODEL, **blobs) as documents:
        batch = await uploaded(documents, heron=HERON, bridge=BRIDGE, empty=b"")
        [letter] = (await documents.get("/api/v2/uploads/dlq")).json()["entries"]
        before = await rows_of(documents)
    names = {"documents_batches", "documents_files", "documents_chunks"}
    assert names <= {name for name, rows in before.items() if rows}

    move(first, postgres_url)
    async with running(postgres_url, **MODEL, **blobs) as documents:
        assert before == await rows_of(documents)
        assert batch == await documents.show(batch["batchId"])
        assert ("hybrid", "heron.txt") == await best(documents, "a heron waits")
        await uploaded(documents, owl=LATER)
        assert ("hybrid", "owl.txt") == await best(documents, "an owl hunts")
        retried = await documents.post(f"/api/v2/uploads/dlq/{letter['fileId']}/retry")
        assert {"success": True} == retried.json()
        await documents.until_event(batch["batchId"], "batch:completed", 2)
        again = await rows_of(documents)

    move(postgres_url, back)
    async with running(back, **MODEL, **blobs) as documents:
        assert again == await rows_of(documents)
        for text, name in {
            "a heron waits": "heron.txt",
            "the bridge after the flood": "bridge.txt",
            "an owl hunts": "owl.txt",
        }.items():
            assert ("hybrid", name) == await best(documents, text)
        await documents.delete(f"/api/v2/uploads/batches/{batch['batchId']}")
        assert "heron.txt" not in (await found(documents, "a heron waits"))[1]


async def best(documents, text):
    mode, names = await found(documents, text)
    return mode, names[0]
