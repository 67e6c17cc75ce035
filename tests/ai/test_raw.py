"""The adapter for OpenAI against a server that misbehaves by the byte."""

import asyncio
from datetime import timedelta

import pytest

from backburner import (
    AnswerTruncated,
    Context,
    PermanentError,
    Throttled,
    TransientError,
    capability,
)
from backburner.domain.jobs.job import JobState

from .conftest import KEY

PATIENCE = 180.0
WELL = {
    "model": "gpt-5-mini-2025-08-07",
    "choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 4},
    },
}


def piece(text, finish=None):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return {"id": "x", "model": "gpt-5-mini", "choices": [choice]}


USED = {
    "id": "x",
    "model": "gpt-5-mini",
    "choices": [],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}


@capability("say", max_attempts=1)
async def say(ctx: Context, text: str) -> str:
    return await ctx.ask(text, stream=text == "stream")


async def test_what_is_asked_and_answered(raw, asker_at):
    raw.says(WELL)
    asking = asker_at(raw.url)

    assert "Hello." == await asking.ask(
        "hi", system="Be kind.", temperature=0.1, max_tokens=200
    )
    assert {
        "model": "gpt-5-mini",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "hi"},
        ],
        "temperature": 0.1,
        "max_tokens": 200,
    } == raw.requests[0], "other servers know no max_completion_tokens"
    assert ("openai", "gpt-5-mini-2025-08-07", 9, 3, 4) == asking.calls[0][:5]


@pytest.mark.parametrize(
    ("body", "status", "headers", "kind", "code"),
    [
        (
            b"<html>busy</html>",
            "503 Service Unavailable",
            {},
            TransientError,
            "AI_UNAVAILABLE",
        ),
        (b"{}", "500 Oops", {}, TransientError, "AI_UNAVAILABLE"),
        (b"{}", "502 Bad Gateway", {}, TransientError, "AI_UNAVAILABLE"),
        (b"{}", "504 Gateway Timeout", {}, TransientError, "AI_UNAVAILABLE"),
        (b"{}", "429 Slow Down", {}, TransientError, "AI_RATE_LIMITED"),
        (b"{}", "429 Slow Down", {"Retry_After": "7"}, Throttled, "AI_RATE_LIMITED"),
        (b"{}", "529 Overloaded", {"Retry_After": "7"}, Throttled, "AI_RATE_LIMITED"),
        (b"{}", "400 No", {}, PermanentError, "AI_REJECTED"),
        (b"{}", "404 No", {}, PermanentError, "AI_REJECTED"),
        (b"{}", "401 No", {}, PermanentError, "AI_UNAUTHORIZED"),
        (b"{}", "403 No", {}, PermanentError, "AI_UNAUTHORIZED"),
        (
            {"error": {"code": "context_length_exceeded", "message": "too long"}},
            "400 No",
            {},
            PermanentError,
            "AI_CONTEXT_TOO_LONG",
        ),
        (b"<html>a proxy's page</html>", "200 OK", {}, TransientError, "AI_BAD_ANSWER"),
        (b"", "200 OK", {}, TransientError, "AI_BAD_ANSWER"),
        (b"[]", "200 OK", {}, TransientError, "AI_BAD_ANSWER"),
        (b"{}", "200 OK", {}, TransientError, "AI_BAD_ANSWER"),
        (b'{"choices": []}', "200 OK", {}, TransientError, "AI_BAD_ANSWER"),
        (
            b'{"choices": [{"message": null}]}',
            "200 OK",
            {},
            TransientError,
            "AI_BAD_ANSWER",
        ),
        (
            {"choices": [{"message": {"content": None}}]},
            "200 OK",
            {},
            TransientError,
            "AI_BAD_ANSWER",
        ),
        (
            {"choices": [{"message": {"content": None, "refusal": "No."}}]},
            "200 OK",
            {},
            PermanentError,
            "AI_REFUSED",
        ),
        (
            {
                "choices": [
                    {"message": {"content": ""}, "finish_reason": "content_filter"}
                ]
            },
            "200 OK",
            {},
            PermanentError,
            "AI_REFUSED",
        ),
    ],
)
async def test_an_answer_that_is_none(raw, asker_at, body, status, headers, kind, code):  # noqa: PLR0913, PLR0917 - a table
    raw.says(body, status, **headers)
    with pytest.raises(kind) as raised:
        await asker_at(raw.url).ask("hi")

    assert (kind, code) == (type(raised.value), raised.value.problem_code)
    assert getattr(raised.value, "retry_after", 7.0) == 7.0
    assert 1 == len(raw.requests), "the client does not try again by itself"


async def test_a_refusal_is_paid_for(raw, asker_at):
    raw.says({**WELL, "choices": [{"message": {"content": None, "refusal": "No."}}]})
    asking = asker_at(raw.url)
    with pytest.raises(PermanentError):
        await asking.ask("hi")

    assert (9, 3) == asking.calls[0][2:4]


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (
            "400 No",
            {"code": "unsupported_parameter", "param": "max_tokens"},
            "it does not accept this request (400 unsupported_parameter max_tokens)",
        ),
        (
            "404 No",
            {"code": "model_not_found"},
            "it has no such model: check BACKBURNER_AI_MODEL (404 model_not_found)",
        ),
        (
            "401 No",
            {"code": "invalid_api_key"},
            "the key was not accepted: check OPENAI_API_KEY (401 invalid_api_key)",
        ),
        (
            "403 No",
            {"type": "permission denied by <policy>"},
            (
                "the key in OPENAI_API_KEY lacks permission for this call: "
                "check its project and permissions at the provider (403)"
            ),
        ),
        (
            "429 No",
            {"code": "insufficient_quota"},
            (
                "the account has no credit left: check its plan and billing at the "
                "provider (429 insufficient_quota)"
            ),
        ),
    ],
)
async def test_what_went_wrong_is_told_in_words_of_our_own(
    raw, asker_at, status, error, said
):
    message = f"canary-8: your prompt was 'hi' and your key {KEY}"
    raw.says({"error": {**error, "message": message}}, status)
    with pytest.raises(PermanentError) as raised:
        await asker_at(raw.url).ask("hi")

    assert f"openai: {said}" == str(raised.value)


async def test_an_account_without_credit_does_not_park_its_lane(raw, working_at):
    quota = {"error": {"code": "insufficient_quota", "message": "pay"}}
    raw.says(quota, "429 Too Many Requests")
    raw.says(WELL)
    backburner = await working_at(raw.url, say)
    failed = await (await backburner.submit(say, "hi")).wait(timeout=PATIENCE)
    [lane] = await backburner.engine.store.lanes()
    then = await (await backburner.submit(say, "hi")).wait(timeout=PATIENCE)

    assert (JobState.FAILED, "AI_QUOTA_EXHAUSTED") == (failed.state, failed.error.code)
    assert not failed.error.retryable
    assert 0 == lane.state.parkings
    assert JobState.SUCCEEDED is then.state


def cut(text):
    """An answer that reached its limit of tokens."""
    return {
        **WELL,
        "choices": [{"message": {"content": text}, "finish_reason": "length"}],
    }


async def test_an_answer_that_is_cut_off_is_no_answer(raw, asker_at):
    raw.says(cut("Half a sen"))
    raw.says(cut(None))
    asking = asker_at(raw.url)
    with pytest.raises(AnswerTruncated, match="max_tokens") as raised:
        await asking.ask("hi")
    with pytest.raises(AnswerTruncated) as empty:
        await asking.ask("hi")

    assert ("AI_TRUNCATED", "Half a sen") == (
        raised.value.problem_code,
        raised.value.text,
    )
    assert "" == empty.value.text, "all of its tokens went into thinking"
    assert (9, 3) == asking.calls[0][2:4], "it is paid for"


async def test_an_answer_that_is_cut_off_may_do(raw, asker_at):
    raw.says(cut("Half a sen"))

    assert "Half a sen" == await asker_at(raw.url).ask("hi", partial=True)


async def test_an_answer_that_is_cut_off_is_not_corrected(raw, asker_at):
    raw.says(cut('{"title": "ha'))
    with pytest.raises(AnswerTruncated):
        await asker_at(raw.url).ask("hi", into=dict[str, str])

    assert 1 == len(raw.requests), "the same limit would cut the correction off, too"


async def test_a_stream_that_is_cut_off_is_no_answer(raw, asker_at):
    raw.streams(piece("Half"), piece("", "length"), USED, b"[DONE]")
    with pytest.raises(AnswerTruncated) as raised:
        await asker_at(raw.url).ask("hi", stream=True)

    assert "Half" == raised.value.text


async def test_nobody_there_is_unavailable(asker_at):
    with pytest.raises(TransientError) as raised:
        await asker_at("http://127.0.0.1:9/v1").ask("hi")

    assert "AI_UNAVAILABLE" == raised.value.problem_code


async def test_a_stream_is_heard_piece_by_piece_and_counted(raw, asker_at):
    raw.streams(piece("Well"), piece(" met."), piece("", "stop"), USED, b"[DONE]")
    heard = []

    async def emit(text):
        heard.append(text)

    asking = asker_at(raw.url, emit=emit)

    assert "Well met." == await asking.ask("hi", stream=True)
    assert ["Well", " met."] == heard
    assert (9, 2) == asking.calls[0][2:4]
    assert raw.requests[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("chunks", "code"),
    [
        ([piece("Well")], "AI_BAD_ANSWER"),
        ([piece("Well"), b"{not json"], "AI_BAD_ANSWER"),
        ([piece("Well"), {"error": {"message": "overloaded"}}], "AI_BAD_ANSWER"),
        ([piece("No", "content_filter"), b"[DONE]"], "AI_REFUSED"),
    ],
)
async def test_a_stream_that_ends_badly(raw, asker_at, chunks, code):
    raw.streams(*chunks)
    with pytest.raises((TransientError, PermanentError)) as raised:
        await asker_at(raw.url).ask("hi", stream=True)

    assert code == raised.value.problem_code


async def test_a_stream_that_drips_for_ever_is_over_in_time(raw, asker_at):
    # Each read is quick enough; only the whole is not.
    raw.streams(*[piece("a ")] * 5, hangs=True)
    with pytest.raises(TransientError) as raised:
        await asker_at(raw.url, seconds=1).ask("hi", stream=True)

    assert "AI_TIMEOUT" == raised.value.problem_code
    async with asyncio.timeout(PATIENCE):
        await raw.gone.wait()


@pytest.mark.parametrize("text", ["whole", "stream"])
async def test_a_cancelled_job_closes_its_socket(raw, working_at, text):
    backburner = await working_at(raw.url, say)
    if text == "stream":
        raw.streams(piece("Once "), hangs=True)
    else:
        raw.hangs()
    ticket = await backburner.submit(say, text)
    async with asyncio.timeout(PATIENCE):
        await raw.asked.wait()
        assert not raw.gone.is_set(), "control: nobody hung up before the cancel"
        await backburner.cancel(ticket.id)
        await raw.gone.wait()


@capability("hurry", max_attempts=1, timeout=timedelta(seconds=1))
async def hurry(ctx: Context, text: str) -> str:
    return await ctx.ask(text)


@pytest.mark.parametrize(
    ("asks", "seconds", "code"), [(say, 1, "AI_TIMEOUT"), (hurry, 60, "TIMEOUT")]
)
async def test_whoever_is_out_of_time_closes_its_socket(
    raw, working_at, asks, seconds, code
):
    backburner = await working_at(raw.url, asks, ai_seconds=seconds)
    raw.hangs()
    ticket = await backburner.submit(asks, "whole")
    job = await ticket.wait(timeout=PATIENCE)

    assert (JobState.FAILED, code) == (job.state, job.error.code)
    async with asyncio.timeout(PATIENCE):
        await raw.gone.wait()
