"""Chunks are found by meaning, each text is embedded once, no cache is behind."""

import asyncio
import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest

from backburner.ai.mock import Mock
from backburner_apps.documents import search, vector_cache
from backburner_apps.documents.chunk_store import erase
from backburner_apps.documents.chunk_tables import chunks, vectors
from backburner_apps.documents.embed_work import Question
from backburner_apps.documents.settings import DocumentsSettings
from backburner_apps.documents.vector_cache import (
    Block,
    Entry,
    IndexStatus,
    VectorCache,
)
from tests.apps.documents.retrieval.conftest import ADA, BOB, ELSEWHERE, opened

WHALES = "Blue whales feed on krill in the Antarctic summer."
BRIDGE = "The bridge over the river was repaired after the flood."
BREAD = "Sourdough bread rises slowly because wild yeast needs time."
MOCK = {"ai": ("mock",), "ai_embedding": ("mock",), "works": True}


@pytest.fixture(autouse=True)
def cache(monkeypatch):
    """A cache of this test."""
    return _use(monkeypatch, VectorCache(10**9))


def _use(monkeypatch, cache):
    monkeypatch.setattr(search, "_cache", lambda _most_bytes: cache)
    return cache


async def test_each_text_is_embedded_once_for_its_owner(start):
    library = await start(**MOCK)
    assert 2 == await library.add(ADA, "f1", WHALES, BRIDGE)
    assert 1 == await library.add(ADA, "f2", WHALES, BREAD)
    assert 0 == await library.embed(ADA, "f2")
    assert 1 == await library.add(BOB, "f3", WHALES)
    await library.write(ADA, "f2", BREAD, WHALES, "Something new.")
    assert 1 == await library.embed(ADA, "f2")
    assert [6, 5, 2] == await library.counts()
    [row, *_] = await library.rows(vectors)
    assert ("mock/mock", 256, 512) == (
        row["model"],
        row["dimension"],
        len(row["vector"]),
    )


@pytest.mark.one_store
async def test_the_program_may_set_how_much_memory_vectors_take(start, monkeypatch):
    asked = []

    def cache(most_bytes):
        asked.append(most_bytes)
        return VectorCache(most_bytes)

    monkeypatch.setattr(search, "_cache", cache)
    library = await start(**MOCK, app_settings=[DocumentsSettings(vector_memory=7)])
    await library.add(ADA, "f1", WHALES)
    assert ["f1"] == await library.found(ADA, WHALES)
    assert {7} == set(asked)


async def test_a_vector_goes_with_the_last_chunk_that_uses_it(start):
    library = await start(**MOCK)
    await library.add(ADA, "f1", WHALES, BRIDGE)
    await library.add(ADA, "f2", WHALES)
    await library.add(BOB, "f3", WHALES)
    await library.delete(ADA, "f1")
    assert [2, 2, 2] == await library.counts()
    await library.delete(ADA, "f2")
    assert [1, 1, 2] == await library.counts()
    while await library.bb.transact(erase, BOB, 1):
        pass
    assert [0, 0, 1] == await library.counts()


async def test_words_and_meaning_are_searched_at_once(start, monkeypatch):
    library = await start(**MOCK)
    await library.add(ADA, "f1", WHALES, BRIDGE)
    both = asyncio.Barrier(2)
    read, question = library.bb.read, search._question

    async def read_together(body, *rest):
        if body is search._by_words:
            await both.wait()
        return await read(body, *rest)

    async def ask_together(*rest):
        await both.wait()
        return await question(*rest)

    monkeypatch.setattr(library.bb, "read", read_together)
    monkeypatch.setattr(search, "_question", ask_together)
    async with asyncio.timeout(30):
        found = await library.search(ADA, "whales")
    assert ("hybrid", "f1") == (found.mode, found.results[0].file_id)


async def test_without_a_model_files_are_found_by_words_and_embedded_later(
    start, store_url
):
    async with opened(store_url, works=True) as without_model:
        assert 0 == await without_model.add(ADA, "f1", WHALES)
    library = await start()  # no worker: it must not take the job that embeds
    found = await library.search(ADA, "krill")
    assert ("keyword", 1) == (found.mode, len(found.results))
    later = await start(**MOCK)
    assert 1 == await later.embed(ADA, "f1")
    assert "hybrid" == (await later.search(ADA, "krill")).mode
    assert "keyword" == (await library.search(ADA, "krill")).mode


async def test_users_are_compared_with_their_own_vectors_only(start):
    library = await start(**MOCK)
    for owner, file_id in ((ADA, "a"), (BOB, "b"), (ELSEWHERE, "e")):
        await library.add(owner, file_id, f"{WHALES} {file_id}")
    for owner, file_id in ((ADA, "a"), (BOB, "b"), (ELSEWHERE, "e")):
        assert [file_id] == await library.found(owner, "whales")
        assert [] == await library.found(owner, "whales", batch_id="other")


async def test_what_another_process_writes_and_deletes_is_seen_at_once(start):
    one, other = await start(**MOCK), await start(**MOCK)
    await one.add(ADA, "f1", WHALES)
    assert ["f1"] == await one.found(ADA, "whales")
    await other.add(ADA, "f2", f"{WHALES} Again.")
    assert {"f1", "f2"} == {*await one.found(ADA, "whales")}
    await other.delete(ADA, "f1")
    assert ["f2"] == await one.found(ADA, "whales")
    await other.add(ADA, "f3", WHALES)
    assert {"f2", "f3"} == {*await one.found(ADA, "whales")}


async def test_a_cache_that_looked_for_no_version_would_be_behind(start, monkeypatch):
    library = await start(**MOCK)
    await library.add(ADA, "f1", WHALES)
    await library.found(ADA, "whales")
    monkeypatch.setattr(vector_cache.Source, "newer", _nothing)
    await library.add(ADA, "f2", BRIDGE)
    near = await _near(library, "bridge")
    assert [] == [each for each in near if each == _hash(BRIDGE)]
    monkeypatch.undo()


async def _nothing(_source, _version):
    for never in ():
        yield never


async def _near(library, text, most=10):
    index = await library.bb.read(search._index, ADA)
    question = await library.bb.run(search.embed_question, text, owner=ADA)
    cache = _cache(library)
    return await cache.nearest(library.bb.read, index.status, question, most)


def _cache(library):
    settings = library.bb.settings_of(DocumentsSettings)
    return search._cache(settings.vector_memory)


def _hash(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.one_store
async def test_many_deleted_vectors_hide_nothing(start, monkeypatch):
    library = await start(**MOCK)
    texts = [f"whales whales whales {n}" for n in range(30)]
    await library.add(ADA, "many", *texts)
    await library.add(ADA, "few", f"{BRIDGE} A whale swam by.")
    monkeypatch.setattr(search, "DEPTH", 5)
    assert "many" == (await library.found(ADA, "whales"))[0]
    await library.delete(ADA, "many")
    near = await search._by_meaning(
        library.bb,
        await library.bb.read(search._index, ADA),
        await library.bb.run(search.embed_question, "whales", owner=ADA),
        search.Filters(),
        10,
    )
    assert 1 == len(near)


@pytest.mark.one_store
@pytest.mark.parametrize("most", [1, 20_000])
async def test_the_cache_is_bounded_and_larger_libraries_are_still_searched(
    start, monkeypatch, most
):
    cache = _use(monkeypatch, VectorCache(most))
    monkeypatch.setattr(vector_cache, "ROWS", 2)
    library = await start(**MOCK)
    owners = [ADA, BOB, ELSEWHERE]
    for owner in owners:
        pages = [f"{WHALES} Number {n}." for n in range(8)]
        await library.add(owner, f"{owner.tenant}-{owner.user}", *pages, BRIDGE)
    for owner in [*owners, *owners]:
        assert BRIDGE == (await library.search(owner, "bridge river")).results[0].text
        assert cache.size <= most
    assert (most == 1) == (cache.size == 0)


@pytest.mark.one_store
async def test_a_search_that_is_cancelled_loses_no_vector(start, monkeypatch):
    monkeypatch.setattr(vector_cache, "ROWS", 2)
    library = await start(**MOCK)
    await library.add(ADA, "f1", *(f"{WHALES} Number {n}." for n in range(7)), BRIDGE)
    reads, read = [], library.bb.read

    async def interrupted(body, *args):
        reads.append(body)
        if len(reads) == 4:
            raise asyncio.CancelledError
        return await read(body, *args)

    monkeypatch.setattr(library.bb, "read", interrupted)
    with pytest.raises(asyncio.CancelledError):
        await library.search(ADA, "bridge")
    monkeypatch.setattr(library.bb, "read", read)
    assert BRIDGE == (await library.search(ADA, "bridge")).results[0].text
    assert 8 == next(iter(_cache(library)._entries.values())).count


@pytest.mark.usefixtures("model")
async def test_meaning_is_found_without_a_common_word(start):
    library = await start(works=True)
    await library.add(ADA, "whales", WHALES)
    await library.add(ADA, "bridge", BRIDGE)
    await library.add(ADA, "bread", BREAD)
    found = await library.search(ADA, "what do huge marine mammals eat?")
    assert ("hybrid", "whales") == (found.mode, found.results[0].file_id)
    [row, *_] = await library.rows(vectors)
    assert ("minilm/all-MiniLM-L6-v2-int8", 384) == (row["model"], row["dimension"])
    chinese = await library.search(ADA, "鲸鱼吃什么?")
    assert ("keyword", []) == (chinese.mode, [*chinese.results])


@pytest.mark.usefixtures("model")
@pytest.mark.one_store
async def test_chinese_is_not_embedded_by_a_model_that_cannot_read_it(start):
    library = await start(works=True)
    assert 1 == await library.add(ADA, "f1", "数据库使用索引来加快查询速度。", WHALES)
    assert [2, 1, 1] == await library.counts()


async def test_a_deleted_file_gets_no_chunk_of_a_job_that_goes_on(start):
    library = await start()
    await library.file(ADA, "f1")
    await library.delete(ADA, "f1")
    await library.write(ADA, "f1", WHALES)
    assert [] == await library.rows(chunks)


@pytest.mark.one_store
async def test_a_text_deleted_and_added_again_is_compared_once(start, monkeypatch):
    library = await start(**MOCK)
    monkeypatch.setattr(search, "DEPTH", 4)
    others = [f"{WHALES} Number {n}." for n in range(3)]
    await library.add(ADA, "others", *others)
    for n in range(5):
        await library.add(ADA, f"f{n}", WHALES)
        assert f"f{n}" == (await library.found(ADA, "whales"))[0]
        await library.delete(ADA, f"f{n}")
    await library.add(ADA, "last", WHALES)

    assert 4 == len(await _near(library, WHALES, most=4))


@pytest.mark.one_store
async def test_a_model_that_changes_its_dimension_keeps_its_vectors_apart(start):
    library = await start(**MOCK)
    await library.add(ADA, "f1", WHALES)
    assert {_hash(WHALES)} == {*await _near(library, "whales")}
    index = await library.bb.read(search._index, ADA)
    shorter = Question("mock/mock", [1.0] * 64)

    found = await _cache(library).nearest(library.bb.read, index.status, shorter, 10)

    assert {} == found


@pytest.mark.one_store
async def test_a_vector_that_is_no_number_spoils_no_other(start, monkeypatch):
    library = await start(**MOCK)
    embed = Mock.embed

    async def broken(self, texts, model):
        reply = await embed(self, texts, model)
        wrong = [
            [float("nan")] * 256 if BRIDGE in texts else each for each in reply.content
        ]
        return replace(reply, content=wrong)

    monkeypatch.setattr(Mock, "embed", broken)
    for file_id, text in (("a", WHALES), ("b", BRIDGE), ("c", BREAD)):
        await library.add(ADA, file_id, text)
    for text in ("whales", BRIDGE):
        results = (await library.search(ADA, text)).results
        assert all(math.isfinite(each.score) for each in results)
        assert 3 == len(results)


def test_a_full_cache_evicts_in_one_pass_and_holds_at_most_its_bound(monkeypatch):
    sizes, size = [], Entry.size.fget
    counted = property(lambda entry: sizes.append(entry) or size(entry))
    monkeypatch.setattr(Entry, "size", counted)
    cache, matrix = VectorCache(200_000), np.zeros((10, 64), np.float32)
    for user in range(40):
        entry = cache._entry(IndexStatus(ADA, f"t{user}", 10, 1, 0), "m", 64)
        entry.blocks = [Block([f"{user}-{n}" for n in range(10)], matrix)]
    sizes.clear()

    large = cache._entry(IndexStatus(ADA, "large", 40, 1, 0), "m", 64)
    large.blocks = [Block([f"l-{n}" for n in range(380)], np.zeros((380, 64), "f4"))]
    cache._shrink(large)

    assert len(sizes) < 200, "the time does not grow with the square of the users"
    assert 0 < cache.size <= 200_000
    large.blocks *= 2
    cache._shrink(large)
    assert 0 == cache.size, "one that has grown is read again"


@pytest.mark.one_store
async def test_users_without_vectors_take_room_in_the_cache_too(start):
    library = await start(**MOCK)
    await library.add(ADA, "f1", WHALES)
    index = await library.bb.read(search._index, ADA)
    cache = VectorCache(20_000)
    for n in range(100):
        status = index.status._replace(token=f"t{n}")
        question = Question("other/model", [1.0] * 4)
        await cache.nearest(library.bb.read, status, question, 10)

    assert len(cache._entries) <= 20


@pytest.mark.one_store
async def test_a_search_in_one_file_of_a_large_library_reads_only_its_vectors(
    start, monkeypatch
):
    _use(monkeypatch, VectorCache(0))
    monkeypatch.setattr(vector_cache, "ROWS", 2)
    library = await start(**MOCK)
    await library.add(ADA, "large", *(f"{WHALES} Number {n}." for n in range(20)))
    await library.add(ADA, "small", BRIDGE, BREAD, WHALES)
    blocks, block = [], vector_cache._block
    monkeypatch.setattr(
        vector_cache, "_block", lambda *args: blocks.append(block(*args)) or blocks[-1]
    )

    found = await library.search(ADA, "whales", file_id="small")

    assert ("hybrid", WHALES) == (found.mode, found.results[0].text)
    assert [2, 1] == [len(each.hashes) for each in blocks]
