"""The adapter for OpenAI against a fake server that nobody here wrote."""

import json
from collections import Counter
from datetime import timedelta

import pytest
from pydantic import BaseModel

from backburner import (
    Context,
    RetryPolicy,
    Throttled,
    TransientError,
    capability,
)
from backburner.domain.ai import CORRECTION
from backburner.domain.events.event import THROTTLED
from backburner.domain.jobs.job import JobState

PATIENCE = 180.0
TASK = {"title": "Buy milk", "steps": ["whole", "2 litres"]}


BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)


class Task(BaseModel):
    title: str
    steps: list[str]


@capability("parse", max_attempts=3, retry=RetryPolicy(base=timedelta(milliseconds=10)))
async def parse(ctx: Context, text: str) -> Task:
    return await ctx.ask(text, into=Task)


@capability("say")
async def say(ctx: Context, text: str) -> str:
    return await ctx.ask(text, stream=True)


def chats(aimock):
    return [entry["body"] for entry in aimock.requests()]


async def spent(backburner, job):
    return (await backburner.engine.store.spent([job.seq]))[job.seq]


async def test_a_text_is_answered_and_counted(aimock, asker_at):
    aimock.answers("Hi there.", "hello")
    asking = asker_at(aimock.url)

    assert "Hi there." == await asking.ask("well, hello")
    [call] = asking.calls
    assert "openai" == call.provider
    assert call.input_tokens > 0 < call.output_tokens


async def test_a_text_is_streamed_to_readers(aimock, working_at):
    text = "Once upon a time there was a queue that nobody had to wait in. " * 5
    aimock.answers(text, "tell")
    backburner = await working_at(aimock.url, say)
    ticket = await backburner.submit(say, "tell me")
    job = await ticket.wait(timeout=PATIENCE)

    assert (JobState.SUCCEEDED, text) == (job.state, json.loads(job.output))
    assert text == "".join([piece.text async for piece in ticket.pieces()])
    assert 1 == (await spent(backburner, job)).calls


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps(TASK),
        f"```json\n{json.dumps(TASK, indent=2)}\n```",
        f"Sure! Here it is:\n\n```\n{json.dumps(TASK)}\n```\nAnything else?",
        f"Of course: {json.dumps(TASK)} (I hope that helps)",
    ],
)
async def test_a_shape_is_read_fenced_or_plain(aimock, asker_at, answer):
    aimock.answers(answer, "milk", responseFormat="json_object")
    asking = asker_at(aimock.url)

    assert Task(**TASK) == await asking.ask("buy milk", into=Task)
    assert 1 == len(asking.calls)


@BOTH
async def test_a_wrong_shape_is_shown_once_and_both_calls_are_booked(
    aimock, working_at
):
    aimock.answers(json.dumps(TASK), CORRECTION)
    aimock.answers('{"title": "Buy milk"}', "milk")
    backburner = await working_at(aimock.url, parse)
    job = await (await backburner.submit(parse, "buy milk")).wait(timeout=PATIENCE)
    first, second = chats(aimock)

    assert (JobState.SUCCEEDED, TASK, 1) == (
        job.state,
        json.loads(job.output),
        job.attempt,
    )
    assert 2 == (await spent(backburner, job)).calls
    assert len(first["messages"]) + 2 == len(second["messages"])
    assert "steps: Field required" in second["messages"][-1]["content"]


async def test_a_shape_that_stays_wrong_ends_the_job(aimock, working_at):
    aimock.answers("I would rather not.")
    backburner = await working_at(aimock.url, parse)
    job = await (await backburner.submit(parse, "buy milk")).wait(timeout=PATIENCE)

    assert ("AI_INVALID_JSON", 1) == (job.error.code, job.attempt)
    assert 2 == len(chats(aimock)), "there is one correction, and no second"


@BOTH
async def test_a_rate_limit_parks_the_lane_and_costs_no_attempt(aimock, working_at):
    aimock.answers(json.dumps(TASK))
    aimock.chaos(rateLimitRate=1)
    backburner = await working_at(aimock.url, parse)
    ticket = await backburner.submit(parse, "buy milk")
    async for event in ticket.events():
        if event.type == THROTTLED:
            break
    aimock.chaos(rateLimitRate=0)
    job = await ticket.wait(timeout=PATIENCE)
    [lane] = await backburner.engine.store.lanes()

    assert "AI_RATE_LIMITED" == event.data["error"]["code"]
    assert event.data["lane"] == lane.state.name
    assert (JobState.SUCCEEDED, 1) == (job.state, job.attempt)
    assert lane.state.parkings >= 1
    assert "secret" not in lane.state.name


@pytest.mark.parametrize(
    ("chaos", "kind", "code"),
    [
        ({"rateLimitRate": 1}, Throttled, "AI_RATE_LIMITED"),
        ({"dropRate": 1}, TransientError, "AI_UNAVAILABLE"),
        ({"malformedRate": 1}, TransientError, "AI_BAD_ANSWER"),
        ({"disconnectRate": 1}, TransientError, "AI_UNAVAILABLE"),
        ({"latencyMs": 30_000}, TransientError, "AI_TIMEOUT"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_each_kind_of_chaos_is_an_error_of_the_engine(
    aimock, asker_at, chaos, kind, code, stream
):
    aimock.answers("Hi there.")
    aimock.chaos(**chaos)
    seconds = 1 if "latencyMs" in chaos else PATIENCE
    with pytest.raises(kind) as raised:
        await asker_at(aimock.url, seconds=seconds).ask("hello", stream=stream)

    assert (kind, code) == (type(raised.value), raised.value.problem_code)


async def test_the_next_provider_stands_in_while_the_first_is_out(aimock, working_at):
    aimock.chaos(dropRate=1)
    backburner = await working_at(aimock.url, say, ai=("openai", "mock"))
    ticket = await backburner.submit(say, "hello")
    job = await ticket.wait(timeout=PATIENCE)

    assert "Mock answer to: hello" == json.loads(job.output)
    assert ("mock",) == (await spent(backburner, job)).models


@BOTH
async def test_many_jobs_in_chaos_all_end_and_none_twice(aimock, working_at):
    aimock.answers(json.dumps(TASK))
    aimock.chaos(dropRate=0.15, malformedRate=0.15, disconnectRate=0.15)
    backburner = await working_at(aimock.url, parse, ai_requests=60_000)
    tickets = await backburner.submit_many(parse, [f"buy milk {n}" for n in range(30)])
    jobs = [await ticket.wait(timeout=PATIENCE) for ticket in tickets]

    assert all(job.state.is_final for job in jobs), "every job has an end"
    codes = {job.error.code for job in jobs if job.state is JobState.FAILED}
    assert codes <= {"AI_UNAVAILABLE", "AI_BAD_ANSWER"}
    done = [job for job in jobs if job.state is JobState.SUCCEEDED]
    assert all(json.loads(job.output) == TASK for job in done)
    assert len(done) > len(jobs) / 2
    good = [e for e in aimock.requests() if not e["response"].get("chaosAction")]
    asked = Counter(e["body"]["messages"][-1]["content"] for e in good)
    assert len(done) == len(good) == len(asked), "no job is asked again once answered"


async def test_vectors_recordings_and_pictures(aimock, asker_at):
    aimock.add({"transcription": {"text": "Buy milk."}}, endpoint="transcription")
    aimock.answers("A cat on a table.", "What is in it?")
    asking = asker_at(aimock.url)
    vectors = await asking.embed(["one", "two"])

    assert [1536, 1536] == [len(vector) for vector in vectors.vectors]
    assert "Buy milk." == await asking.transcribe(b"OggS...", "audio/ogg")
    picture = b"\x89PNG\r\n"
    told = await asking.describe(picture, "image/png", "What is in it?")
    assert "A cat on a table." == told
    assert 3 == len(asking.calls)
