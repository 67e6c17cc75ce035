"""How the matches of two searches become one order."""

import pytest

from backburner_apps.documents.ranking import Match, Weights, fuse
from tests.apps.documents.retrieval.conftest import ADA, BOB

SIMILAR = [Match(1, 0.62), Match(2, 0.6), Match(3, 0.2)]


def test_a_chunk_with_few_of_the_words_does_not_displace_a_similar_one():
    weak = [Match(3, 0.1), Match(1, 0.05)]

    assert [1, 2, 3] == [*fuse(weak, SIMILAR)]


def test_a_chunk_with_all_the_words_comes_before_similar_ones():
    assert 2 == next(iter(fuse([Match(2, 1.0)], SIMILAR)))
    assert 4 == next(iter(fuse([Match(4, 1.0), Match(1, 0.0)], SIMILAR[1:])))


def test_scores_are_at_most_one_and_do_not_depend_on_the_range_of_a_model():
    found = fuse([Match(1, 1.0)], SIMILAR)
    shifted = [Match(seq, 0.8 + score / 10) for seq, score in SIMILAR]

    assert 1.0 == found[1]
    assert found == pytest.approx(fuse([Match(1, 1.0)], shifted))


def test_with_the_spread_of_a_model_small_differences_count_little():
    near = [Match(1, 0.62), Match(2, 0.6), Match(3, 0.58)]
    words = [Match(3, 0.4)]

    assert 3 == next(iter(fuse(words, near, spread=0.3)))
    assert 1 == next(iter(fuse(words, near))), "control: they decide without it"
    assert 1.0 == fuse([Match(1, 1.0)], near, spread=0.3)[1]


def test_one_list_alone_keeps_its_order():
    words = [Match(7, 0.5), Match(5, 0.5), Match(6, 0.9)]

    assert {6: 0.9, 7: 0.5, 5: 0.5} == fuse(words, None)
    assert [6, 7, 5] == [*fuse(words, None)], "equal ones as they were"
    assert [1, 2, 3] == [*fuse(words, SIMILAR, Weights(0.0, 1.0))]
    assert {} == fuse([], [])
    assert {9: 0.5} == fuse([], [Match(9, 0.4)]), "one alone is the most similar"
    assert {9: 0.5} == fuse([], [Match(9, 0.4)], spread=0.3)


async def test_a_score_by_words_is_their_share_and_rare_ones_count_more(start):
    library = await start()
    for n in range(8):
        await library.file(ADA, f"f{n}")
        await library.write(ADA, f"f{n}", f"The harvest of year {n} was good.")
    await library.file(ADA, "rare")
    await library.write(ADA, "rare", "Walnuts are dear.")

    async def scores(text):
        results = (await library.search(ADA, text)).results
        return {each.file_id: each.score for each in results}

    assert {"rare": 1.0} == await scores("walnuts")
    both = await scores("harvest walnuts")
    assert both["rare"] > 0.8
    assert 0.2 > both["f1"] > 0
    unknown = await scores("harvest walnuts submarine")
    assert unknown["rare"] < 0.6, "a word that no chunk has is missing in all"

    await library.file(BOB, "other")
    await library.write(BOB, "other", *[f"harvest {n} in a barn" for n in range(40)])
    assert both == await scores("harvest walnuts"), "whatever others have"
