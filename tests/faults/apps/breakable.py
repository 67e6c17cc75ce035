"""Handlers to break: loaded by the workers of these tests as `breakable:app`."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel

from backburner import App, Context, RetryPolicy, Transaction, capability

PAID = 10
"""Tokens that a call of `pay` uses."""
effects = sa.Table(
    "effects",
    sa.MetaData(),
    sa.Column("job", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
)


class Work(BaseModel):
    """How long it takes."""

    seconds: float = 0.0
    gate: Path | None = None
    """While there is such a file, it takes longer."""


def leave_one_effect(ctx: Context) -> None:
    """Write a row together with the settlement."""

    def write(tx: Transaction) -> None:
        row = {"job": ctx.job.id, "generation": ctx.job.generation}
        tx.connection.execute(effects.insert(), row)

    ctx.at_settlement(write)


@capability("work")
async def work(ctx: Context, value: Work) -> str:
    """Take a while."""
    leave_one_effect(ctx)
    await asyncio.sleep(value.seconds)  # noqa: TID251 - the work itself
    while value.gate is not None and value.gate.exists():  # noqa: ASYNC110 - by a test
        await asyncio.sleep(0.01)  # noqa: TID251
    return ctx.job.id


@capability("block")
async def block(ctx: Context, value: Work) -> str:
    """Block the event loop: nothing can interrupt this before it has an outcome."""
    leave_one_effect(ctx)
    time.sleep(value.seconds)  # noqa: ASYNC251, TID251 - that is the point
    while value.gate is not None and value.gate.exists():
        time.sleep(0.01)  # noqa: ASYNC251, TID251
    return ctx.job.id


@capability("transact")
async def transact(ctx: Context, value: Work) -> str:
    """Block the event loop, then commit a row while the job runs."""
    if value.gate is not None:
        value.gate.with_suffix(".begun").touch()
    while value.gate is not None and value.gate.exists():
        time.sleep(0.01)  # noqa: ASYNC251, TID251

    def write(tx: Transaction) -> None:
        row = {"job": ctx.job.id, "generation": ctx.job.generation}
        tx.connection.execute(effects.insert(), row)

    # So that no interruption of the handler comes first: the store must refuse it.
    await asyncio.shield(ctx.transact(write))
    return ctx.job.id


@capability("stand still")
async def stand_still(ctx: Context, value: Work) -> str:
    """Commit a row after the gate is open; say beside it when the body begins."""

    def write(tx: Transaction) -> None:
        row = {"job": ctx.job.id, "generation": ctx.job.generation}
        tx.connection.execute(effects.insert(), row)
        if value.gate is not None:
            value.gate.with_suffix(".begun").touch()
        while value.gate is not None and value.gate.exists():
            time.sleep(0.01)  # noqa: TID251 - frozen meanwhile

    await ctx.transact(write)
    return ctx.job.id


class Bill(BaseModel):
    """Where the provider of a model keeps its journal, and how long a call takes."""

    journal: Path
    seconds: float = 0.02


@capability("pay")
async def pay(ctx: Context, value: Bill) -> str:
    """Call a model once, and write a row together with the settlement."""
    leave_one_effect(ctx)
    await asyncio.sleep(value.seconds)  # noqa: TID251 - the call itself
    with value.journal.open("a") as journal:
        journal.write(f"{ctx.job.id}\n")
    ctx.used("a-model", input_tokens=PAID - 1, output_tokens=1)
    return ctx.job.id


@capability("crash")
async def crash(_ctx: Context, _value: None) -> None:
    """Take the whole process down."""
    os._exit(139)


@capability("shout", retry=RetryPolicy(max_attempts=1))
async def shout(ctx: Context, value: dict[str, Any]) -> None:
    """Say what was given wherever a handler can."""
    await ctx.progress(1, 2, value["progress"])
    await ctx.emit(value["streamed"])
    raise RuntimeError(value["error"])


@capability("store")
async def store(ctx: Context, megabytes: int) -> str:
    """Write a blob that outlives the job, and delete it if there is one."""
    found = await ctx.app_blobs.list()
    if found:
        await ctx.app_blobs.delete(found[0].id)
        return found[0].id
    piece = bytes(1024 * 1024)
    return (await ctx.app_blobs.write(piece for _ in range(megabytes))).id


app = App(
    "breakable",
    capabilities=[work, block, transact, stand_still, pay, crash, shout, store],
)
