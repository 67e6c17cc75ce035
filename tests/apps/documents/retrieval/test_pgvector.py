"""Vectors are compared in PostgreSQL where it has pgvector, with the same results."""

import json
import secrets
import sys

import asyncpg
import pytest

from backburner_apps.documents import search
from backburner_apps.documents.examination import examine
from backburner_apps.documents.full_text import Filters
from backburner_apps.documents.pgvector import index_vectors, nearest
from backburner_apps.documents.vector_cache import VectorCache, bytes_of
from tests import warm
from tests.apps.documents.retrieval.conftest import ADA, BOB, opened
from tests.conftest import found

MOCK = {"ai": ("mock",), "ai_embedding": ("mock",), "works": True}
TEXTS = [
    f"{animal} {verb} in the {place}."
    for animal in ("A whale", "An owl", "A heron", "The bridge")
    for verb in ("sleeps", "hunts", "waits", "stands")
    for place in ("sea", "river", "forest", "morning")
]
QUESTIONS = ("whale in the sea", "which bird hunts in the forest", "bridge river")
PLAIN = "plain"
VECTOR = bytes_of(256)


@pytest.fixture(scope="module")
def server():
    """A PostgreSQL server that has pgvector."""
    return found("BACKBURNER_TEST_PGVECTOR_URL")


@pytest.fixture
async def pgvector_url(server):
    """A new database, which belongs to a role without special rights."""
    name = f"test_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(server)
    if not await admin.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", PLAIN):
        await admin.execute(f"CREATE ROLE {PLAIN} LOGIN")
    await admin.execute(f'CREATE DATABASE "{name}" OWNER {PLAIN}')
    yield server.rsplit("/", 1)[0] + f"/{name}"
    await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await admin.close()


@pytest.fixture
def cache(monkeypatch):
    """A cache of this test, which says what was compared in memory."""
    return use(monkeypatch, VectorCache(10**9))


def use(monkeypatch, cache):
    monkeypatch.setattr(search, "_cache", lambda _most_bytes: cache)
    return cache


async def indexed(library):
    return await (await library.bb.submit(index_vectors, None)).result()


async def reported(library):
    [finding] = await library.bb.read(lambda view: [*examine(view.connection)])
    return finding


async def everything(library):
    """Search by each question, with and without filters."""
    return [
        [(each.file_id, each.page, each.score) for each in found.results]
        for owner in (ADA, BOB)
        for filters in ({}, {"file_id": "f2"}, {"batch_id": "b2"})
        for text in QUESTIONS
        for found in [await library.search(owner, text, limit=50, **filters)]
    ]


def assert_same(some, others):
    """Compare what was found; scores differ, as vectors are rounded differently."""
    for here, there in zip(some, others, strict=True):
        assert [each[:2] for each in here] == [each[:2] for each in there]
        scores = [each[2] for each in here]
        assert scores == pytest.approx([each[2] for each in there], abs=1e-3)


async def test_the_database_finds_what_the_scan_in_memory_finds(
    pgvector_url, cache, monkeypatch
):
    async with opened(pgvector_url, **MOCK) as library:
        await library.add(ADA, "f1", *TEXTS[::2])
        await library.add(ADA, "f2", *TEXTS[1::2], batch="b2")
        await library.add(BOB, "f3", *TEXTS[:9])
        in_memory = await everything(library)
        assert cache.size
        use(monkeypatch, VectorCache(0))
        assert_same(in_memory, await everything(library))  # slice by slice
        use(monkeypatch, cache)

        assert len(TEXTS) + 9 == await indexed(library)
        assert "in the database (pgvector" in (await reported(library)).message
        with monkeypatch.context() as patched:
            patched.setattr(search.pgvector, "nearest", None)
            assert_same(in_memory, await everything(library))  # memory is preferred
        none = use(monkeypatch, VectorCache(0))
        monkeypatch.setattr(none, "nearest", None)
        assert_same(in_memory, await everything(library))  # in the database

        await library.add(BOB, "f4", "A lighthouse on the coast.")
        assert "f4" == (await library.found(BOB, "lighthouse"))[0]
        await library.delete(ADA, "f1")
        assert {"f2"} == {*await library.found(ADA, "whale in the sea", limit=50)}
        assert 0 == await indexed(library)
        near = await library.bb.read(_near, BOB)
        assert 10 == len(near)


def _near(view, owner):
    return nearest(view, owner, "mock/mock", [1.0] * 256, 50, Filters())


async def test_without_the_right_to_install_it_vectors_are_compared_slice_by_slice(
    pgvector_url, monkeypatch
):
    plain = pgvector_url.replace("postgres@", f"{PLAIN}@")
    async with opened(plain, **MOCK) as library:
        await library.add(ADA, "f1", *TEXTS[:3])
        assert 0 == await indexed(library)
        assert ("pass", "") == (await reported(library))[::3], "all fit in memory"
        monkeypatch.setenv("BACKBURNER_DOCUMENTS_VECTOR_MEMORY", str(3 * VECTOR - 1))
        use(monkeypatch, VectorCache(3 * VECTOR - 1))
        finding = await reported(library)
        assert ("warn", True) == (finding.status, "CREATE EXTENSION" in finding.fix)
        assert f"take {3 * VECTOR:,} bytes" in finding.message
        assert "hybrid" == (await library.search(ADA, "whale")).mode
        told = warm.run(
            [sys.executable, "-m", "backburner", "doctor", "--json", "--store", plain],
            capture_output=True,
            text=True,
        )
        lines = [json.loads(line) for line in told.stdout.splitlines()]
        assert json.loads(json.dumps(finding._asdict())) in lines

        admin = await asyncpg.connect(pgvector_url)
        await admin.execute("CREATE EXTENSION vector")
        await admin.close()
        assert 3 == await indexed(library)
        assert "pass" == (await reported(library)).status


async def test_it_can_be_switched_off(pgvector_url, monkeypatch):
    async with opened(pgvector_url, **MOCK) as library:
        await library.add(ADA, "f1", *TEXTS[:3])
        assert 3 == await indexed(library)
    monkeypatch.setenv("BACKBURNER_DOCUMENTS_PGVECTOR", "off")
    async with opened(pgvector_url, **MOCK) as library:
        assert 0 == await indexed(library)
        use(monkeypatch, VectorCache(0))
        assert "f1" == (await library.found(ADA, "whale"))[0]
        assert "_PGVECTOR is off" in (await reported(library)).message
