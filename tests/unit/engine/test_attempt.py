import asyncio
from datetime import timedelta

import pytest

from backburner.domain.errors import (
    PermanentError,
    Throttled,
    TransientError,
    WorkError,
)
from backburner.domain.jobs.outcome import Cancel, Done, Failed, Snooze
from backburner.engine.registry import capability
from backburner.engine.run.attempt import Attempt
from backburner.engine.run.outcomes import Interruption, classify
from backburner.engine.run.services import Services
from backburner.testing.doubles import FakeContext
from backburner.testing.samples import a_claim


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (TransientError("busy"), Failed("TRANSIENT", "busy")),
        (TransientError("busy", code="MINE"), Failed("MINE", "busy")),
        (PermanentError("no"), Failed("PERMANENT", "no", retryable=False)),
        (PermanentError("no", code="MINE"), Failed("MINE", "no", retryable=False)),
        (WorkError("no"), Failed("WORK_FAILED", "no", retryable=False)),
        (Throttled("wait"), Failed("THROTTLED", "wait")),
        (
            Throttled("wait", retry_after=1.5),
            Failed("THROTTLED", "wait", True, timedelta(seconds=1.5)),
        ),
        (
            Throttled("wait", retry_after=-1),
            Failed("THROTTLED", "wait", True, timedelta()),
        ),
        (
            Throttled("wait", retry_after=float("inf")),
            Failed("THROTTLED", "wait", True, timedelta(days=365)),
        ),
        (
            Throttled("wait", retry_after=float("nan")),
            Failed("THROTTLED", "wait", True, timedelta()),
        ),
        (TimeoutError(), Failed("TIMEOUT", "the handler exceeded a time limit")),
        (TimeoutError("30 s"), Failed("TIMEOUT", "30 s")),
        (KeyError("name"), Failed("UNEXPECTED", "KeyError: 'name'")),
        (ValueError("\ud800"), Failed("UNEXPECTED", "ValueError: ?")),
    ],
)
def test_what_an_exception_means(error, outcome):
    assert outcome == classify(error)


def test_a_long_message_is_cut():
    assert 2_000 == len(classify(TransientError("x" * 5_000)).message)


@capability("count")
async def count(_ctx: FakeContext, value: int) -> int:
    return value + 1


@capability("refuse")
async def refuse(_ctx: FakeContext, value: str) -> int | Snooze | Cancel | Failed:
    return {
        "snooze": Snooze(timedelta(seconds=1)),
        "cancel": Cancel("pointless"),
        "failed": Failed("NO", "no"),
        "wrong": "three",
        "snooze in seconds": Snooze(5),
        "failed in seconds": Failed("NO", "no", True, 5),
    }[value]


@capability("wait")
async def wait(_ctx: FakeContext, _value: None) -> None:
    await asyncio.get_running_loop().create_future()


async def run(attempt):
    return await attempt.run(Services(None))


async def test_a_result_is_written_as_json():
    assert Done("42") == await run(Attempt(a_claim(input="41"), count))


@pytest.mark.parametrize(
    ("asked", "outcome"),
    [
        ('"snooze"', Snooze(timedelta(seconds=1))),
        ('"cancel"', Cancel("pointless")),
        ('"failed"', Failed("NO", "no")),
    ],
)
async def test_an_answer_is_a_value(asked, outcome):
    assert outcome == await run(Attempt(a_claim(input=asked), refuse))


@pytest.mark.parametrize(
    "asked", ['"wrong"', '"snooze in seconds"', '"failed in seconds"']
)
async def test_an_answer_of_the_wrong_type_is_a_failure_for_good(asked):
    outcome = await run(Attempt(a_claim(input=asked), refuse))

    assert ("INVALID_OUTPUT", False) == (outcome.code, outcome.retryable)


async def test_an_input_that_no_longer_fits_is_a_failure_for_good():
    outcome = await run(Attempt(a_claim(input='"one"'), count))

    assert ("INVALID_INPUT", False) == (outcome.code, outcome.retryable)


async def test_a_job_nobody_here_knows_is_left_to_others():
    attempt = Attempt(a_claim(capability="new"), None)
    attempt.unknown_wait = timedelta(seconds=7)
    outcome = await run(attempt)

    assert ("UNKNOWN_CAPABILITY", True) == (outcome.code, outcome.retryable)
    assert timedelta(seconds=7) == outcome.retry_after


@pytest.mark.parametrize(
    ("why", "outcome"),
    [
        (Interruption.LOST, None),
        (
            Interruption.TIMED_OUT,
            Failed("TIMEOUT", "the attempt exceeded the capability's timeout"),
        ),
    ],
)
async def test_a_handler_is_interrupted_at_its_next_await(why, outcome):
    attempt = Attempt(a_claim(input="null"), wait)
    running = asyncio.create_task(run(attempt))
    attempt.task = running
    asyncio.get_running_loop().call_soon(attempt.interrupt, why)

    assert outcome == await running
