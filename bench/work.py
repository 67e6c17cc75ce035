"""The jobs that are measured, and the times that their handlers record."""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel

from backburner import App, Context, Transaction, capability

QUEUE = os.environ.get("BENCH_QUEUE", "bench")
"""Their queue; with a broker, each run has a queue of its own."""
TOKENS = 120
started: dict[int, int] = {}
"""Start of the handler of job `i`, in nanoseconds of the machine's clock."""
finished: list[int] = []
"""The jobs whose handler has returned."""
on_start: list[Callable[[int, int], None]] = []
"""Functions to call when a handler starts."""


class Payload(BaseModel):
    """About 200 bytes of JSON, as many as the peers get."""

    i: int
    user: str = "u-000042"
    kind: str = "noop"
    pad: str = "x" * 150


class Index(BaseModel):
    """The result of a job, which the benchmark reads back."""

    i: int


@capability("bench.noop", queue=QUEUE)
async def noop(_ctx: Context, value: Payload) -> Index:
    """Do nothing and return the index."""
    started[value.i] = time.monotonic_ns()
    for tell in on_start:
        tell(value.i, started[value.i])
    finished.append(value.i)
    return Index(i=value.i)


@capability("bench.spend", queue=QUEUE, tokens=2 * TOKENS, model="bench")
async def spend(ctx: Context, value: Payload) -> Index:
    """Record the usage of a simulated model call and return the index."""
    ctx.used("bench", input_tokens=TOKENS - 20, output_tokens=20)
    return Index(i=value.i)


@capability("bench.nap", queue=QUEUE)
async def nap(_ctx: Context, value: Payload) -> Index:
    """Wait for a second, as a model call would."""
    await asyncio.sleep(1.0)
    finished.append(value.i)
    return Index(i=value.i)


@capability("bench.extract", queue=QUEUE)
async def extract(_ctx: Context, value: Payload) -> Index:
    """Return the index."""
    return Index(i=value.i)


@capability("bench.chunk", queue=QUEUE)
async def chunk(_ctx: Context, value: Index) -> Index:
    """Hand on what came."""
    return value


@capability("bench.embed", queue=QUEUE)
async def embed(_ctx: Context, value: Index) -> Index:
    """Hand on what came."""
    return value


KEPT = sa.Table("bench_kept", sa.MetaData(), sa.Column("i", sa.BigInteger))
"""The table to which jobs write in their settlement transaction."""


@capability("bench.keep", queue=QUEUE)
async def keep(ctx: Context, value: Payload) -> Index:
    """Write a row in the settlement transaction and return the index."""
    ctx.at_settlement(lambda tx: _keep(tx, value.i))
    finished.append(value.i)
    return Index(i=value.i)


def _keep(tx: Transaction, i: int) -> None:
    tx.connection.execute(sa.insert(KEPT).values(i=i))


STEPS = 20
"""The number of steps of each of many jobs."""
step_seconds: list[float] = []
"""The duration of each step of a job that runs alone."""


@capability("bench.steps", queue=QUEUE)
async def steps(ctx: Context, value: Payload) -> Index:
    """Compute steps one after the other."""
    for n in range(STEPS):
        await ctx.step(f"step {n}", _computed, n)
    finished.append(value.i)
    return Index(i=value.i)


@capability("bench.timed-steps", queue=QUEUE)
async def timed_steps(ctx: Context, value: Payload) -> Index:
    """Compute steps one after the other, each timed."""
    for n in range(value.i):
        begun = time.perf_counter()
        await ctx.step(f"step {n}", _computed, n)
        step_seconds.append(time.perf_counter() - begun)
    return Index(i=value.i)


resumed: dict[int, int] = {}
"""Time at which the handler of job `i` continued after its wait."""


@capability("bench.waiter", queue=QUEUE)
async def waiter(ctx: Context, value: Payload) -> Index:
    """Wait for a signal for up to a day and return the index."""
    started[value.i] = time.monotonic_ns()
    await ctx.wait("go", timeout=86_400)
    resumed[value.i] = time.monotonic_ns()
    return Index(i=value.i)


def _computed(n: int) -> Index:
    return Index(i=n)


app = App(
    "bench",
    capabilities=[
        *(noop, spend, nap, extract, chunk, embed, keep),
        *(steps, timed_steps, waiter),
    ],
)


def payloads(count: int, first: int = 0) -> list[Any]:
    """Return `count` inputs."""
    return [Payload(i=i) for i in range(first, first + count)]
