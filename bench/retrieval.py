"""
Quality of the search: `python -m bench.retrieval` prints hit@1, hit@3 and hit@10.

The texts and questions are in tests/fixtures/retrieval. With the path of a file, it
measures your own set in the same format, or one of XQuAD (`xquad.en.json` of
github.com/google-deepmind/xquad). Each set belongs to a separate user. It needs the
prepared model: `backburner documents prepare`.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from backburner import (
    App,
    Backburner,
    Context,
    ModelUse,
    Owner,
    Settings,
    Transaction,
    capability,
)
from backburner_apps.documents import words
from backburner_apps.documents.chunk_store import replace_chunks
from backburner_apps.documents.chunking import chunk_pages
from backburner_apps.documents.embed_work import embed_missing, embed_question
from backburner_apps.documents.full_text import Filters
from backburner_apps.documents.pgvector import index_vectors
from backburner_apps.documents.ranking import WEIGHTS, Weights
from backburner_apps.documents.search import find
from backburner_apps.documents.settings import DocumentsSettings
from backburner_apps.documents.tables import files

FOLDER = Path(__file__).parents[1] / "tests" / "fixtures" / "retrieval"
SETS = [f"paraphrased-{language}" for language in ("english", "german", "chinese")]
ENGINES = {
    "keyword": Weights(1.0, 0.0),
    "vector": Weights(0.0, 1.0),
    "hybrid": WEIGHTS,
}
DEPTHS = (1, 3, 10)
MOST_SHARED = 0.5
Figures = dict[str, dict[str, list[float]]]


class Question(NamedTuple):
    """A question, and the file and page that answer it."""

    text: str
    file_id: str
    page: int


class Corpus(NamedTuple):
    """Articles by their file's id, each a list of paragraphs, and questions."""

    articles: dict[str, list[str]]
    questions: list[Question]

    def answer(self, question: Question) -> str:
        """Return the paragraph that answers a question."""
        return self.articles[question.file_id][question.page - 1]


def read_corpus(name: str) -> Corpus:
    """Read a set of texts and questions, by its name here or by its path."""
    if name.endswith(".json"):
        return _read_xquad(Path(name))
    corpus, file_id = Corpus({}, []), ""
    path = Path(name) if name.endswith(".txt") else FOLDER / f"{name}.txt"
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("# "):
            file_id = f"{path.stem}-{len(corpus.articles):02}"
            corpus.articles[file_id] = []
        elif line.startswith("?"):
            page, _, text = line[1:].partition(" ")
            corpus.questions.append(Question(text, file_id, int(page)))
        else:
            corpus.articles[file_id].append(line)
    return corpus


def _read_xquad(path: Path) -> Corpus:
    """Read XQuAD's paragraphs, and the questions that do not repeat their answers."""
    corpus = Corpus({}, [])
    for number, article in enumerate(json.loads(path.read_text("utf-8"))["data"]):
        file_id = f"{path.stem}-{number:02}"
        paragraphs = corpus.articles[file_id] = []
        for paragraph in article["paragraphs"]:
            text = paragraph["context"]
            paragraphs.append(text)
            corpus.questions.extend(
                Question(asked["question"], file_id, len(paragraphs))
                for asked in paragraph["qas"]
                if shared(asked["question"], text) <= MOST_SHARED
            )
    return corpus


def shared(question: str, answer: str) -> float:
    """Return the share of a question's content words that its answer contains."""
    asked = set(words.words(question))
    return len(asked.intersection(words.words(answer))) / (len(asked) or 1)


@capability("bench.embed", queue="bench")
async def embed(ctx: Context, file_id: str) -> int:
    """Embed the chunks of a file."""
    return await embed_missing(ctx, ctx.job.owner, file_id)


APP = App(
    "documents",
    own=[embed, embed_question, index_vectors],
    models=[ModelUse("embedding", is_required=False, fallback="minilm")],
    migrations="backburner_apps.documents.migrations",
    settings=DocumentsSettings,
)


async def add_file(
    bb: Backburner, owner: Owner, file_id: str, paragraphs: Sequence[str]
) -> int:
    """Store a file with these paragraphs as pages; return how many were embedded."""
    pages = [
        SimpleNamespace(number=number, text=text, kind="page")
        for number, text in enumerate(paragraphs, 1)
    ]
    parts = chunk_pages(pages)
    await bb.transact(add_row, owner, file_id)
    await bb.transact(replace_chunks, owner, file_id, "batch", parts)
    return await (await bb.submit(embed, file_id, owner=owner)).result()


def add_row(tx: Transaction, owner: Owner, file_id: str) -> None:
    """Store the row of a file, as it is after processing."""
    zeros = dict.fromkeys(("size", "expires_at", "created_at", "updated_at"), 0)
    whose = {"tenant": owner.tenant, "user": owner.user, "batch_id": "batch"}
    state = {"name": file_id, "status": "ready", "upload": file_id, "version": 1}
    row = {"id": file_id, **whose, **state, **zeros}
    tx.connection.execute(files.insert(), row)


async def measure(
    store: str, sets: Sequence[str] = SETS, engines: Sequence[str] = tuple(ENGINES)
) -> Figures:
    """Store and embed all texts; return hits by set and engine."""
    async with Backburner(Settings(store=store, ai=()), apps=[APP]) as bb:
        await bb.start_worker()
        return {name: await _measure_set(bb, name, engines) for name in sets}


async def _measure_set(
    bb: Backburner, name: str, engines: Sequence[str]
) -> dict[str, list[float]]:
    corpus, owner = read_corpus(name), Owner("default", name)
    for file_id, paragraphs in corpus.articles.items():
        await add_file(bb, owner, file_id, paragraphs)
    return {
        engine: await _hits(bb, owner, engine, corpus.questions) for engine in engines
    }


async def _hits(
    bb: Backburner, owner: Owner, engine: str, questions: Sequence[Question]
) -> list[float]:
    """Return the share of questions whose answer is found within each depth."""
    places = [await _place(bb, owner, engine, question) for question in questions]
    return [
        round(sum(place <= depth for place in places) / len(places), 3)
        for depth in DEPTHS
    ]


async def _place(bb: Backburner, owner: Owner, engine: str, question: Question) -> int:
    """Return the rank of the answer, or a large number if it is not found."""
    found = await find(
        bb, owner, question.text, Filters(), max(DEPTHS), ENGINES[engine]
    )
    wanted = question.file_id, question.page
    places = [(each.file_id, each.page) for each in found.results]
    return places.index(wanted) + 1 if wanted in places else max(DEPTHS) + 1


def table(figures: Figures) -> Iterator[str]:
    """Return the figures as a Markdown table."""
    yield "| texts | search | " + " | ".join(f"hit@{n}" for n in DEPTHS) + " |"
    yield "| --- " * (2 + len(DEPTHS)) + "|"
    for name, engines in figures.items():
        for engine, hits in engines.items():
            yield f"| {name} | {engine} | {' | '.join(f'{n:.2f}' for n in hits)} |"


def main() -> None:
    """Measure on SQLite and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/jobs.db"
        figures = asyncio.run(measure(store, sys.argv[1:] or SETS))
    for line in table(figures):
        print(line)


if __name__ == "__main__":
    main()
