"""Capabilities for trying Backburner in development."""

import asyncio
import time
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from backburner.app import App
from backburner.domain.costs.budget import Budget
from backburner.domain.errors import PermanentError, Throttled, TransientError
from backburner.domain.jobs.retry import RetryPolicy
from backburner.domain.lanes.lane import Lane
from backburner.engine.registry import capability
from backburner.engine.run.context import Context

QUEUE = "demo"
STEPS = 20
REMEMBERED = 1_000
Seconds = Annotated[float, Field(ge=0, le=3600)]


class Strict(BaseModel):
    """A model that accepts no unknown field."""

    model_config = ConfigDict(extra="forbid")


class Sleep(Strict):
    """The time to sleep."""

    seconds: Seconds = 1.0


class Slept(Strict):
    """The time slept."""

    slept: float


class Write(Strict):
    """The text to write, and the time to take."""

    text: str = Field("A ticket now, the result when it is ready.", max_length=10_000)
    seconds: Seconds = 1.0


class Fail(Strict):
    """How often to fail, and how."""

    times: int = Field(1, ge=0, le=100)
    error: Literal["transient", "permanent", "throttled"] = "transient"
    retry_after: Seconds | None = None


class Attempts(Strict):
    """The number of runs."""

    attempts: int


@capability("demo.echo", queue=QUEUE)
async def echo(_ctx: Context, value: dict[str, Any]) -> dict[str, Any]:
    """Return the input."""
    return value


@capability("demo.sleep", queue=QUEUE, timeout=timedelta(hours=2))
async def sleep(ctx: Context, value: Sleep) -> Slept:
    """Sleep, and report progress."""
    for step in range(STEPS):
        await asyncio.sleep(value.seconds / STEPS)  # noqa: TID251 - its purpose
        await ctx.progress(step + 1, STEPS)
    return Slept(slept=value.seconds)


@capability("demo.write", queue=QUEUE, timeout=timedelta(hours=2))
async def write(ctx: Context, value: Write) -> str:
    """Write a text, word by word."""
    words = value.text.split(" ")
    for place, word in enumerate(words):
        await asyncio.sleep(value.seconds / len(words))  # noqa: TID251 - as above
        await ctx.emit(f" {word}" if place else word)
    return ctx.text


class Report(Strict):
    """The topic of a report, and whether a person must release it."""

    topic: str = Field("durable jobs", max_length=1_000)
    is_reviewed: bool = False


@capability("demo.report", queue=QUEUE, timeout=timedelta(hours=2), tokens=500)
async def report(ctx: Context, value: Report) -> str:
    """Outline a report and write it with a model; a person may have to release it."""
    outline = await ctx.ask(f"Outline a report on {value.topic}.")
    text: str = await ctx.ask(f"Write it: {outline}", stream=True)
    if value.is_reviewed:
        await ctx.ask_person(
            f"Release the report on {value.topic}?",
            choices=["yes", "no"],
            timeout=timedelta(hours=1),
            default="no",
        )
    return text


_failures: dict[str, int] = {}


@capability("demo.fail", queue=QUEUE, retry=RetryPolicy(max_attempts=5))
async def fail(ctx: Context, value: Fail) -> Attempts:
    """Fail the given number of times, then succeed."""
    failed = _failures.get(ctx.job.id, ctx.job.attempt - 1)
    if failed >= value.times:
        _failures.pop(ctx.job.id, None)
        return Attempts(attempts=failed + 1)
    _failures[ctx.job.id] = failed + 1
    if len(_failures) > REMEMBERED:
        del _failures[next(iter(_failures))]
    message = f"failed on purpose, {failed + 1} of {value.times}"
    if value.error == "permanent":
        raise PermanentError(message)
    if value.error == "throttled":
        raise Throttled(message, retry_after=value.retry_after)
    raise TransientError(message)


@capability("demo.block", queue=QUEUE)
async def block(_ctx: Context, value: Sleep) -> Slept:
    """Block the event loop, like a careless handler."""
    time.sleep(value.seconds)  # noqa: ASYNC251, TID251 - that is the point
    return Slept(slept=value.seconds)


app = App("demo", capabilities=[echo, sleep, write, fail, block])

models = App(
    "demo-models",
    capabilities=[report],
    lanes=[Lane("mock/mock", requests=600)],
    budgets=[Budget("capability", tokens=1_000_000, of="demo.report")],
)
"""What calls a model, with a limit of its rate and a budget."""
