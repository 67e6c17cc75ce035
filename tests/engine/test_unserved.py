"""A program that waits for a job although no worker takes jobs of its queue."""

import asyncio

import pytest
import structlog

from backburner import Context, capability
from backburner.domain.jobs.job import JobState
from backburner.engine import ticket as tickets


@capability("greet")
async def greet(_ctx: Context, name: str) -> str:
    return f"Hello, {name}"


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(tickets, "UNSERVED_SECONDS", 0.05)


def warnings(lines):
    return [line for line in lines if line["log_level"] == "warning"]


async def test_waiting_for_a_job_that_no_worker_takes_says_so_once(submitting):
    bb = await submitting(greet)
    many = [*(await bb.submit_many(greet, ["Ann", "Bob"])), await bb.submit(greet, "C")]
    with structlog.testing.capture_logs() as lines:
        left = await asyncio.gather(*(ticket.wait(timeout=0.1) for ticket in many))

    assert {JobState.QUEUED} == {job.state for job in left}
    [warning] = warnings(lines)
    assert warning["event"].startswith("no worker takes jobs of the queue 'default'")
    assert "await bb.start_worker()" in warning["event"]


async def test_a_worker_that_starts_after_the_warning_gives_the_result(
    submitting, until
):
    bb = await submitting(greet)
    with structlog.testing.capture_logs() as lines:
        result = asyncio.create_task((await bb.submit(greet, "Ann")).result())
        await until(lambda: warnings(lines))
        await bb.start_worker()

        assert "Hello, Ann" == await result


async def test_waiting_for_a_worker_that_is_busy_warns_of_nothing(working, submitting):
    gate = asyncio.Event()

    @capability("hold")
    async def hold(_ctx: Context, value: int) -> int:
        await gate.wait()
        return value

    await working(hold, slots=1)
    bb = await submitting(hold)
    first, second = await bb.submit_many(hold, [1, 2])
    with structlog.testing.capture_logs() as lines:
        job = await second.wait(timeout=0.1)
        gate.set()
        results = [await first.result(), await second.result()]

    assert JobState.QUEUED is job.state
    assert [1, 2] == results
    assert [] == warnings(lines)
