"""Handlers that do what no handler should: their job ends, their slot is free."""

import asyncio
import gc
from contextlib import suppress
from datetime import timedelta

import pytest
from pydantic import BaseModel, field_validator

from backburner import Context, capability
from backburner.domain.jobs.job import JobState
from backburner.engine.run import worker


class Panic(BaseException):
    """What a Rust extension raises: it is no `Exception`."""


class Speechless(Exception):
    def __str__(self):
        raise LookupError("no words")


class Fussy(BaseModel):
    """An input that is good when it is sent and none when it is run."""

    x: int

    @field_validator("x")
    @classmethod
    def check(cls, x):
        if FUSS:
            raise FUSS[0]
        return x


FUSS = []


@pytest.fixture(params=[KeyError("only here"), Panic("only here")])
def fuss(request):
    yield lambda: FUSS.append(request.param)
    FUSS.clear()


@capability("good")
async def good(_ctx: Context, value: int) -> int:
    return value


@capability("panics")
async def panics(_ctx: Context, _value: int) -> int:
    raise Panic("deep inside")


@capability("exits")
async def exits(_ctx: Context, _value: int) -> int:
    raise SystemExit(3)


@capability("speechless")
async def speechless(_ctx: Context, _value: int) -> int:
    raise Speechless


@capability("fussy")
async def fussy(_ctx: Context, _value: Fussy) -> int:
    return 1


@pytest.mark.parametrize("name", ["panics", "exits", "speechless"])
async def test_whatever_a_handler_raises_its_job_fails_and_its_slot_is_free(
    working, ended, name
):
    backburner = await working(good, panics, exits, speechless, slots=1)

    bad = await ended(await backburner.submit(name, 1, max_attempts=1))
    after = await ended(await backburner.submit("good", 2))

    assert (JobState.FAILED, "UNEXPECTED") == (bad.state, bad.error.code)
    assert (JobState.SUCCEEDED, "2") == (after.state, after.output)


@pytest.mark.parametrize("name", ["panics", "speechless"])
async def test_whatever_a_handler_raises_its_job_is_tried_again(working, told, name):
    backburner = await working(good, panics, speechless, slots=1)
    ticket = await backburner.submit(name, 1, max_attempts=2)

    event = await told(ticket, "job.retrying")

    assert "UNEXPECTED" == event.data["error"]["code"]


async def test_a_validator_that_breaks_costs_its_job_only(
    submitting, ended, fuss, caplog
):
    backburner = await submitting(good, fussy, slots=1)
    ticket = await backburner.submit("fussy", {"x": 1}, max_attempts=1)
    fuss()
    await backburner.start_worker()

    bad = await ended(ticket)
    after = await ended(await backburner.submit("good", 2))
    gc.collect()  # tasks whose exception nobody took tell of it when they go

    assert (JobState.FAILED, "UNEXPECTED") == (bad.state, bad.error.code)
    assert JobState.SUCCEEDED == after.state
    assert [] == caplog.messages


@pytest.fixture
def stubborn():
    """A handler that does not let itself be interrupted, and what makes it return."""
    release = asyncio.Event()

    @capability("stubborn", timeout=timedelta(seconds=0.1))
    async def stubborn(_ctx: Context, value: int) -> int:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()
        return value

    return stubborn, release


async def test_a_handler_that_swallows_its_interruption_is_settled_without_it(
    working, ended, until, stubborn, monkeypatch
):
    monkeypatch.setattr(worker, "STUBBORN_SECONDS", 0.1)
    handler, release = stubborn
    backburner = await working(handler)
    ticket = await backburner.submit(handler, 1, max_attempts=1)

    job = await ended(ticket)
    still_running = backburner._worker.running
    release.set()
    await until(lambda: backburner._worker.running == 0)
    after = await ended(await backburner.submit(handler, 2))

    assert (JobState.FAILED, "TIMEOUT") == (job.state, job.error.code)
    assert 1 == still_running
    assert JobState.SUCCEEDED == after.state
    assert job == await ticket.job()


async def test_a_number_too_large_for_json_costs_nobody_else_their_progress(
    working, told, until
):
    both, release = asyncio.Barrier(2), asyncio.Event()

    @capability("counting")
    async def counting(ctx: Context, value: int) -> int:
        await both.wait()
        await ctx.progress(2**value, 2**value)
        await release.wait()
        return 1

    backburner = await working(counting)
    tickets = await backburner.submit_many(counting, [70, 3])

    large, small = [await told(ticket, "job.progress") for ticket in tickets]
    release.set()
    await until(lambda: backburner._worker.running == 0)

    assert {"done": 2.0**70, "total": 2.0**70} == large.data
    assert {"done": 8, "total": 8} == small.data
