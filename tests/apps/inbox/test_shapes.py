"""What a model's answer must be."""

import pytest
from pydantic import ValidationError

from backburner_apps.inbox.shapes import Parsed

TASK = {"title": "Buy milk"}
STEP = {"title": "a", "order": 0}


def task(**more):
    return {"tasks": [{**TASK, **more}]}


@pytest.mark.parametrize(
    "answer",
    [
        {"tasks": [TASK] * 5},
        task(title="t" * 500, summary="s" * 2000, projectHint=None),
        task(deadline="2026-11-20T17:00:00Z", subtasks=[STEP] * 20),
        task(deadline="2026-11-20"),
        task(deadline=None),
    ],
)
def test_an_answer_within_the_limits_is_taken(answer):
    assert Parsed.model_validate(answer)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"tasks": []},
        {"tasks": [TASK] * 6},
        {"tasks": TASK},
        task(title=""),
        task(title="  "),
        task(title="t" * 501),
        task(title=5),
        task(summary="s" * 2001),
        task(deadline="tomorrow"),
        task(deadline="1794975000"),
        task(deadline=1794975000),
        task(subtasks=[STEP] * 21),
        task(subtasks=[{"title": "a", "order": -1}]),
        task(subtasks=[{"title": "a"}]),
        task(subtasks=[{"title": "t" * 501, "order": 0}]),
    ],
)
def test_any_other_answer_is_not(answer):
    with pytest.raises(ValidationError):
        Parsed.model_validate(answer)


def test_steps_are_in_their_order():
    steps = [{"title": "second", "order": 7}, {"title": "first", "order": 2}]
    [found] = Parsed.model_validate(task(subtasks=steps)).tasks

    assert ["first", "second"] == found.steps
