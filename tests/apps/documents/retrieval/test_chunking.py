"""Chunks are small enough for the model and the same in every process."""

import sys
from itertools import pairwise

import pytest
from tokenizers import Tokenizer

from backburner_apps.documents.chunking import chunk_pages, content_hash
from backburner_apps.documents.ranking import ELLIPSIS, snippet
from backburner_apps.documents.words import is_cjk, query_words, stem, words
from bench.retrieval import SETS, read_corpus
from tests import warm
from tests.apps.documents.retrieval.conftest import page

pytestmark = pytest.mark.one_store


@pytest.mark.parametrize("name", SETS)
def test_no_chunk_has_more_tokens_than_the_model_reads(model, name):
    folder = model / "all-MiniLM-L6-v2-int8"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    articles = read_corpus(name).articles.values()
    text = "\n".join(line for article in articles for line in article)
    parts = chunk_pages([page(text)])
    sizes = [len(tokenizer.encode(part.text).ids) for part in parts]
    assert max(sizes) <= 256
    # Not far smaller either; paragraphs of 155 tokens are not put together.
    assert len(parts) < 5 or sum(sizes) / len(sizes) > 100


def test_chunks_overlap_and_stay_on_their_page():
    sentences = [f"Sentence number {n} tells about harbour {n}." for n in range(80)]
    parts = chunk_pages([page(" ".join(sentences), 3), page("The end.", 4)])
    assert [*range(len(parts))] == [part.number for part in parts]
    assert ({3}, 4) == ({part.page for part in parts[:-1]}, parts[-1].page)
    for before, after in pairwise(parts[:-1]):
        assert any(each in after.text for each in before.text.split(". ")[-4:])
    assert all(any(each in part.text for part in parts) for each in sentences)
    assert [None] == [p.page for p in chunk_pages([page("Text.", 1, "section")])]
    assert [] == chunk_pages([page(" \n\0 ")])
    assert content_hash(parts[0].text) == parts[0].content_hash


def test_another_process_makes_the_same_chunks():
    program = (
        "from tests.apps.documents.retrieval.conftest import page;"
        "from backburner_apps.documents.chunking import chunk_pages;"
        "print(*(c.content_hash for c in chunk_pages([page('A b c. é 漢字 ' * 500)])))"
    )
    here = [c.content_hash for c in chunk_pages([page("A b c. é 漢字 " * 500)])]
    done = warm.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert here == done.stdout.decode().split()
    assert len(here) > 1


def test_what_no_database_stores_is_left_out():
    [part] = chunk_pages([page("a\0b \ud800 c")])
    assert "ab  c" == part.text


def test_words_have_stems_and_pairs():
    assert {"stor"} == {stem(word) for word in ("store", "stored", "storing", "stores")}
    assert ["数据", "据库", "库", "index"] == [*words("数据库 the INDEX")]
    assert ["数据", "据库"] == query_words("数据库")
    assert ["库"] == query_words("库")
    assert (True, False) == (is_cjk("数据库 index"), is_cjk("an index"))


def test_a_snippet_shows_where_the_words_are():
    text = (
        " ".join(f"word{n}" for n in range(300)) + " the harbour bridge " + "x " * 300
    )
    shown = snippet(text, query_words("harbour bridges"))
    assert "harbour bridge" in shown
    assert shown.startswith(ELLIPSIS)
    assert len(shown) <= 302
    assert "short" == snippet("short", [])
