"""Chunks are found by their words, by their owner only."""

import pytest
import sqlalchemy as sa

from backburner_apps.documents import full_text, search
from backburner_apps.documents.chunk_store import erase, rebuild
from backburner_apps.documents.chunk_tables import chunks
from backburner_apps.documents.tables import files
from tests.apps.documents.retrieval.conftest import ADA, BOB, ELSEWHERE, opened

WHALES = "Blue whales feed on krill in the Antarctic summer."
BRIDGE = "The bridge over the river was repaired after the flood."
INVOICE = "Invoice 4711 was paid on 3 May; the sum was 1,250 euros."


async def test_a_chunk_is_found_by_forms_of_its_words(start):
    library = await start()
    await library.file(ADA, "f1", name="Sea.pdf")
    await library.write(ADA, "f1", "Nothing here.", WHALES)
    await library.file(ADA, "f2")
    await library.write(ADA, "f2", BRIDGE, kind="section")

    found = await library.search(ADA, "what do whales feed on?")
    [whales] = found.results
    assert ("keyword", "f1", "Sea.pdf", "b1", 2) == (found.mode, *whales[:4])
    assert (WHALES, True) == (whales.snippet, whales.score > 0)
    [bridge] = (await library.search(ADA, "repairing bridges")).results
    assert ("f2", None) == (bridge.file_id, bridge.page)
    assert [] == await library.found(ADA, "submarine")
    assert [] == await library.found(ADA, "the and of")
    assert [] == await library.found(ADA, "\"' OR * NEAR( \0 :* & | !")


async def test_a_chunk_with_rarer_and_more_words_comes_first(start):
    library = await start()
    for n in range(5):
        await library.file(ADA, f"f{n}")
        await library.write(ADA, f"f{n}", f"A report about the harvest number {n}.")
    await library.file(ADA, "best")
    await library.write(ADA, "best", "A report about the harvest of walnuts in Peru.")
    assert "best" == (await library.found(ADA, "report harvest walnuts"))[0]
    assert 3 == len(await library.found(ADA, "harvest", limit=3))


async def test_users_find_only_their_own_files(start):
    library = await start()
    for owner, file_id in ((ADA, "a"), (BOB, "b"), (ELSEWHERE, "e")):
        await library.file(owner, file_id)
        await library.write(owner, file_id, WHALES, BRIDGE)
    for owner, file_id in ((ADA, "a"), (BOB, "b"), (ELSEWHERE, "e")):
        assert [file_id] == await library.found(owner, "whales")
        for other in {"a", "b", "e"} - {file_id}:
            assert [] == await library.found(owner, "whales", file_id=other)


async def test_search_is_limited_to_a_batch_or_a_file(start):
    library = await start()
    for n, batch in enumerate(("b1", "b1", "b2")):
        await library.file(ADA, f"f{n}", batch=batch)
        await library.write(ADA, f"f{n}", WHALES, batch=batch)
    assert {"f0", "f1"} == {*await library.found(ADA, "krill", batch_id="b1")}
    assert ["f1"] == await library.found(ADA, "krill", file_id="f1")
    assert [] == await library.found(ADA, "krill", batch_id="b2", file_id="f1")


async def test_chinese_is_found_by_pairs_of_characters(start):
    library = await start()
    await library.file(ADA, "zh")
    await library.write(ADA, "zh", "数据库使用索引来加快查询速度。")
    await library.file(ADA, "ja")
    await library.write(ADA, "ja", "東京タワーは高さ333メートルです。")
    assert ["zh"] == await library.found(ADA, "如何使用索引?")
    assert ["ja"] == await library.found(ADA, "タワーの高さ")
    assert ["zh"] == await library.found(ADA, "度")  # one alone, and the last
    assert [] == await library.found(ADA, "引索")


async def test_frequent_words_are_left_out_where_there_are_too_many(start, monkeypatch):
    library = await start()
    for n in range(4):
        await library.file(ADA, f"f{n}")
        await library.write(ADA, f"f{n}", f"harvest report{' walnuts' * (n == 3)}")
    asked = "harvest report walnuts"
    assert 4 == len(await library.found(ADA, asked))
    monkeypatch.setattr(full_text, "MOST_POSTINGS", 3)
    assert ["f3"] == await library.found(ADA, asked)
    assert 4 == len(await library.found(ADA, "harvest"))  # never none of them


async def test_statistics_tell_the_frequency_of_frequent_words(
    migrated_url, monkeypatch
):
    async with opened(migrated_url) as library:
        for n in range(8):
            await library.file(ADA, f"f{n}")
            await library.write(ADA, f"f{n}", f"harvest{' walnuts' * (n in (3, 7))}")
            if n == 3:
                await library.bb.transact(_analyse)

        async def counts():
            return await library.bb.read(_counts, "harvest", "walnut")

        assert [8, 2] == await counts()
        monkeypatch.setattr(full_text, "FREQUENT", 3)
        assert [4, 2] == await counts()  # four when the table was analysed
        monkeypatch.setattr(full_text, "MOST_POSTINGS", 2)
        assert [3, 2] == await counts()
        assert ["f3", "f7"] == await library.found(ADA, "harvest walnuts")


async def test_postgresql_finds_by_rare_words_and_ranks_by_all(
    migrated_url, monkeypatch
):
    async with opened(migrated_url) as library:
        for n, text in enumerate(("walnuts", "walnuts harvest", "harvest", "harvest")):
            await library.file(ADA, f"f{n}")
            await library.write(ADA, f"f{n}", text)
        asked = "walnuts harvest"
        assert 4 == len(await library.found(ADA, asked))
        monkeypatch.setattr(full_text, "MOST_READ", 2)
        both, one = (await library.search(ADA, asked)).results
        assert ("f1", 1.0, "f0") == (both.file_id, both.score, one.file_id)
        assert 0.5 < one.score < 1  # the share of the rarer word
        assert ["f2"] == await library.found(ADA, asked, file_id="f2")


def _analyse(tx):
    tx.connection.execute(sa.text("ANALYZE documents_words"))


def _counts(view, *words):
    lexemes = [f"'{full_text.prefix_of(1)}{word}'" for word in words]
    counts = full_text.TsVector(view.connection)._counts(lexemes)
    return [counts[each] for each in lexemes]


async def test_a_deleted_file_is_found_no_more(start):
    library = await start()
    await library.file(ADA, "f1")
    await library.write(ADA, "f1", WHALES, BRIDGE, INVOICE)
    await library.file(ADA, "f2")
    await library.write(ADA, "f2", WHALES)
    assert 2 == await library.delete(ADA, "f1", limit=2)
    assert 1 == await library.delete(ADA, "f1", limit=2)
    assert 0 == await library.delete(ADA, "f1", limit=2)
    assert ["f2"] == await library.found(ADA, "whales bridge invoice")
    assert [1, 0, 1] == await library.counts()


async def test_a_file_written_again_has_its_new_chunks_only(start):
    library = await start()
    await library.file(ADA, "f1")
    await library.write(ADA, "f1", WHALES, BRIDGE, INVOICE)
    before = {row["number"]: row["seq"] for row in await library.rows(chunks)}
    await library.write(ADA, "f1", WHALES, INVOICE)
    rows = await library.rows(chunks)
    assert [0, 1] == sorted(row["number"] for row in rows)
    assert before[0] == next(row["seq"] for row in rows if row["number"] == 0)
    assert [] == await library.found(ADA, "bridge")
    [found] = (await library.search(ADA, "invoice")).results
    assert 2 == found.page


async def test_a_user_is_erased_in_slices(start):
    library = await start()
    for owner, file_id in ((ADA, "a"), (BOB, "b")):
        await library.file(owner, file_id)
        await library.write(owner, file_id, WHALES, BRIDGE, INVOICE)
    erased = []
    while count := await library.bb.transact(erase, ADA, 2):
        erased.append(count)
    assert [2, 1, 1] == erased
    assert [] == await library.found(ADA, "whales")
    assert ["b"] == await library.found(BOB, "whales")
    assert [3, 0, 1] == await library.counts()


async def test_the_index_is_rebuilt_from_the_chunks(start):
    library = await start()
    await library.file(ADA, "a")
    await library.write(ADA, "a", WHALES, "数据库使用索引")
    await library.bb.transact(lambda tx: full_text.full_text(tx.connection).clear())
    assert [] == await library.found(ADA, "whales")  # control
    for _ in range(2):
        await library.bb.transact(lambda tx: rebuild(tx.connection))
        assert ["a"] == await library.found(ADA, "whales")
        assert ["a"] == await library.found(ADA, "索引")


@pytest.mark.one_store
async def test_no_number_is_the_beginning_of_another():
    prefixes = [full_text.prefix_of(n) for n in range(1, 5_000)]
    assert len({*prefixes}) == len(prefixes)
    assert not any(
        other.startswith(one)
        for one in prefixes[:300]
        for other in prefixes
        if one != other
    )


async def test_equal_pages_of_a_file_hide_no_other_file(start):
    library = await start()
    await library.file(ADA, "forms")
    await library.write(ADA, "forms", *["This harvest form is blank."] * 60)
    await library.file(ADA, "report")
    await library.write(ADA, "report", "A report about a harvest, a blank and a farm.")

    assert ["forms", "report"] == await library.found(
        ADA, "blank harvest form", limit=2
    )


async def test_chunks_of_a_deleted_file_hide_no_other_file(start):
    library = await start()
    await library.file(ADA, "gone")
    await library.write(ADA, "gone", *[f"Harvest number {n}." for n in range(60)])
    await library.file(ADA, "report")
    await library.write(ADA, "report", "A long report about each harvest of a farm.")
    gone = files.delete().where(files.c.id == "gone")
    await library.bb.transact(lambda tx: tx.connection.execute(gone))

    assert ["report"] == await library.found(ADA, "harvest")


async def test_the_best_of_equal_chunks_keeps_its_place(start):
    library = await start()
    for file_id, texts in (("twice", (WHALES, WHALES)), ("other", (BRIDGE,))):
        await library.file(ADA, file_id)
        await library.write(ADA, file_id, *texts)
    first, second, other = (row["seq"] for row in await library.rows(chunks))
    ranked = search.Ranked({first: 0.9, other: 0.8, second: 0.7}, "keyword")

    found = await search.results(library.bb, ADA, "whales", ranked, 10)

    assert ["twice", "other"] == [each.file_id for each in found.results]
    assert 1 == found.results[0].page
