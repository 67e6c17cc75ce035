"""The provider without a model: useful, the same each time, and able to fail."""

import asyncio
import json
import math
from datetime import datetime
from typing import Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from backburner.ai.mock import Mock
from backburner.domain.ai import CORRECTION, Trouble
from backburner.domain.errors import ConfigurationError
from backburner.ports.ai import Chat, Fault, Media, Message
from backburner.testing.doubles import FrozenClock

SYSTEM = Message("system", "Now it is 2026-11-15T20:00:00+01:00 (Europe/Berlin).")


class Step(BaseModel):
    title: str
    order: int = 0


class Task(BaseModel):
    title: str
    dueDate: str | None = None  # noqa: N815 - the wire's name
    priority: Literal["low", "medium", "high"]
    category: str | None = None
    recurrence: str | None = None
    subtasks: list[Step]


class Todo(BaseModel):
    title: str
    summary: str | None = None
    deadline: datetime | None = None
    subtasks: list[Step] = []


class Todos(BaseModel):
    tasks: list[Todo] = Field(min_length=1, max_length=5)


class Report(BaseModel):
    summary: str = Field(min_length=1, max_length=50)
    score: int = Field(ge=1, le=5)
    kind: Literal["good", "bad"]
    steps: list[Step] = Field(min_length=2)


@pytest.fixture
def mock():
    return Mock(FrozenClock())


def question(text, into=None, *more):
    schema = None if into is None else TypeAdapter(into).json_schema()
    return Chat([SYSTEM, Message("user", text), *more], "mock", schema=schema)


async def test_a_sentence_becomes_a_task_of_the_shape_that_is_asked_for(mock):
    said = "<sentence>Call mum tomorrow at 5pm, urgent: ask for the cake</sentence>"
    reply = await mock.chat(question(f"Parse this: {said}", Task))
    task = Task.model_validate_json(reply.content)

    assert "Call mum" == task.title
    assert "2026-11-16T17:00:00+01:00" == task.dueDate
    assert "high" == task.priority, "a level that the shape lacks becomes the nearest"
    assert [Step(title="Ask for the cake", order=0)] == task.subtasks


async def test_a_time_zone_that_is_named_knows_of_summer(mock):
    reply = await mock.chat(question("Call mum on 5 May at 5pm", Task))

    assert (
        "2027-05-05T17:00:00+02:00" == Task.model_validate_json(reply.content).dueDate
    )


async def test_without_a_time_in_the_prompt_the_clock_counts(mock):
    chat = Chat(
        [Message("user", "run tomorrow")],
        "mock",
        schema=TypeAdapter(Task).json_schema(),
    )
    now = json.loads((await mock.chat(chat)).content)["dueDate"]
    again = json.loads((await mock.chat(chat)).content)["dueDate"]

    assert now == again


async def test_any_other_shape_is_filled_in(mock):
    reply = await mock.chat(question("How was it?", Report))
    report = Report.model_validate_json(reply.content)

    assert "How was it?" == report.summary
    assert 2 == len(report.steps)


async def test_without_a_shape_it_repeats_what_it_was_told(mock):
    heard = []

    async def hear(piece):
        heard.append(piece)

    reply = await mock.chat(question("hello there"), hear)

    assert "Mock answer to: hello there" == reply.content == "".join(heard)
    assert reply.tokens.input > 0 < reply.tokens.output


async def test_texts_that_share_words_have_vectors_that_are_near(mock):
    texts = ["the red house", "a red house", "quarterly tax report"]
    first, near, far = (await mock.embed(texts, "mock")).content

    assert math.isclose(1.0, math.dist(first, [0.0] * len(first)))
    assert math.dist(first, near) < math.dist(first, far)
    assert first == (await mock.embed(texts[:1], "other")).content[0]


async def test_what_it_cannot_do_it_says(mock):
    heard = await mock.transcribe(Media(b"abc", "audio/ogg"), "mock")
    seen = await mock.describe(Media(b"abc", "image/png"), "What is it?", "mock")

    assert heard.content.startswith("[mock transcription: this recording")
    assert seen.content.startswith("[mock description: this picture")


@pytest.mark.parametrize(
    ("mark", "trouble"),
    [
        ("429", Trouble.RATE_LIMITED),
        ("500", Trouble.UNAVAILABLE),
        ("401", Trouble.UNAUTHORIZED),
        ("400", Trouble.REJECTED),
        ("drop", Trouble.UNAVAILABLE),
        ("broken", Trouble.BAD_ANSWER),
        ("refuse", Trouble.REFUSED),
        ("too long", Trouble.TOO_LONG),
    ],
)
async def test_it_fails_as_a_mark_in_the_prompt_says(mock, mark, trouble):
    with pytest.raises(Fault) as raised:
        await mock.chat(question(f"hello [[mock: {mark}]]"))

    assert trouble is raised.value.trouble


async def test_a_mark_may_say_how_often_and_how_long(mock):
    asked = question("hello [[mock: 429 retry-after=7 times=2]]")
    told = []
    for _ in range(2):
        with pytest.raises(Fault) as raised:
            await mock.chat(asked)
        told.append(raised.value.headers)

    assert [{"retry-after": "7"}] * 2 == told
    assert "hello" in (await mock.chat(asked)).content, "the third time it is well"


async def test_it_hangs_until_somebody_gives_up(mock):
    asking = asyncio.create_task(mock.chat(question("x [[mock: hang]]")))
    await asyncio.wait([asking], timeout=0.05)

    assert not asking.done()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_it_drips(mock):
    heard = []

    async def hear(piece):
        heard.append(piece)

    await mock.chat(question("one two [[mock: drip]]"), hear)

    assert 5 == len(heard)


@pytest.mark.parametrize(("mark", "is_well"), [("once", True), ("", False)])
async def test_it_talks_nonsense_once_or_always(mock, mark, is_well):
    text = f"run [[mock: nonsense {mark}]]"
    first = await mock.chat(question(text, Task))
    shown = Message("assistant", first.content), Message("user", f"{CORRECTION}it is")
    second = await mock.chat(question(text, Task, *shown))

    assert "{" in first.content, "it looks a little like JSON"
    assert is_well is second.content.startswith('{"title":"Run"')


async def test_it_fails_as_its_script_says_and_then_no_more():
    mock = Mock(FrozenClock(), script=["500", "ok", "drop"])
    troubles = []
    for _ in range(4):
        try:
            await mock.chat(question("x"))
        except Fault as fault:
            troubles.append(fault.trouble)
        else:
            troubles.append(None)

    assert [Trouble.UNAVAILABLE, None, Trouble.UNAVAILABLE, None] == troubles


def test_a_script_that_makes_no_sense_is_refused():
    with pytest.raises(ConfigurationError, match="does not know the failure 'explode'"):
        Mock(FrozenClock(), script=["explode"])


async def test_a_message_becomes_the_tasks_that_are_asked_for(mock):
    said = "<message>\nПозвонить маме завтра в 5 вечера. Купить: хлеб и сыр\n</message>"
    reply = await mock.chat(question(said, Todos))
    call, buy = Todos.model_validate_json(reply.content).tasks

    assert ("Позвонить маме", "2026-11-16T17:00:00+01:00") == (
        call.title,
        call.deadline.isoformat(),
    )
    assert [Step(title="Хлеб"), Step(title="Сыр", order=1)] == buy.subtasks


async def test_json_of_another_shape_until_it_is_corrected_or_for_ever(mock):
    once = question("[[mock: misfit once]] buy milk", Todos)
    shown = Message("assistant", "x"), Message("user", f"{CORRECTION}wrong")
    first = await mock.chat(once)
    corrected = await mock.chat(
        question("[[mock: misfit once]] buy milk", Todos, *shown)
    )
    never = await mock.chat(question("[[mock: misfit]] buy milk", Todos, *shown))

    assert first.content == never.content
    with pytest.raises(ValueError, match="tasks"):
        Todos.model_validate_json(first.content)
    [task] = Todos.model_validate_json(corrected.content).tasks
    assert "Buy milk" == task.title


SOURCES = """<source n="1" file="a.txt">
The warranty lasts two years. Returns are free.
</source>
<source n="2" file="b.txt">
保修期为三年。
</source>
"""


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("How long is the warranty?", "The warranty lasts two years. [1]"),
        ("Are returns free?", "Returns are free. [1]"),
        ("保修期多久", "保修期为三年。 [2]"),
        ("Who won the football match?", "UNSUPPORTED"),
    ],
)
async def test_a_question_with_sources_is_answered_by_quoting_them(mock, asked, answer):
    prompt = f"{SOURCES}\n<question>\n{asked}\n</question>"

    assert answer == (await mock.chat(question(prompt))).content
