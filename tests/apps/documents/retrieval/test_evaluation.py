"""How well questions find their answers; `python -m bench.retrieval` prints it all."""

import json

import pytest

from bench.retrieval import MOST_SHARED, SETS, measure, read_corpus, shared

pytestmark = pytest.mark.thorough

FLOORS = {
    "paraphrased-english": {
        "keyword": [0.05, 0.12, 0.22],
        "vector": [0.54, 0.71, 0.87],
        "hybrid": [0.5, 0.72, 0.87],
    },
    "paraphrased-chinese": {"keyword": [0.9, 1.0, 1.0], "hybrid": [0.9, 1.0, 1.0]},
}
"""Below what was measured, as processors round differently."""


@pytest.mark.parametrize("name", SETS)
def test_questions_share_at_most_half_of_their_words_with_their_answer(name):
    corpus = read_corpus(name)
    over = [
        question
        for question in corpus.questions
        if shared(question.text, corpus.answer(question)) > MOST_SHARED
    ]
    assert [] == over
    assert len(corpus.questions) >= 15


def test_there_are_enough_questions_and_paragraphs():
    corpus = read_corpus("paraphrased-english")
    assert len(corpus.questions) >= 60
    assert sum(map(len, corpus.articles.values())) >= 200


def test_a_set_of_xquad_keeps_the_questions_that_do_not_copy(tmp_path):
    answer = "The bridge over the river was repaired after the flood."
    asked = [
        "Was the bridge over the river repaired?",
        "What was done to it, and when?",
    ]
    paragraph = {"context": answer, "qas": [{"question": each} for each in asked]}
    path = tmp_path / "xquad.en.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    corpus = read_corpus(str(path))

    assert {"xquad.en-00": [answer]} == corpus.articles
    assert [(asked[1], "xquad.en-00", 1)] == corpus.questions


def test_a_copied_question_is_noticed():
    answer = "The bridge over the river was repaired after the flood."
    assert shared("Was the bridge over the river repaired?", answer) > MOST_SHARED
    assert shared("What happened when the water had gone?", answer) <= MOST_SHARED


@pytest.mark.usefixtures("model")
async def test_questions_find_their_answers(tmp_path, record_property):
    store = f"sqlite:///{tmp_path}/jobs.db"
    figures = await measure(store, [*FLOORS])

    record_property("told", f"retrieval, hit@1, hit@3, hit@10: {figures}")
    for name, engines in FLOORS.items():
        for engine, floors in engines.items():
            hits = figures[name][engine]
            assert all(hit >= floor for hit, floor in zip(hits, floors, strict=True))
    english = figures["paraphrased-english"]
    assert english["hybrid"][1] > english["keyword"][1]
    assert english["hybrid"][1] > english["vector"][1] - 0.03, "words do no harm"
