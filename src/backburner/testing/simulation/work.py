"""The work of a simulation: a script says what each run of a job does."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa
from pydantic import BaseModel

from backburner.domain.errors import PermanentError, Throttled, TransientError
from backburner.domain.outcome import Cancel, Failed, Snooze
from backburner.domain.retry import RetryPolicy
from backburner.engine.context import Context
from backburner.engine.registry import Capability, Registry, capability
from backburner.engine.transaction import Transaction
from backburner.testing.simulation.process import PROCESS
from backburner.testing.simulation.world import LEASE

TIMEOUT: Final = timedelta(seconds=2 * LEASE)
RETRY: Final = RetryPolicy(
    base=timedelta(milliseconds=200),
    cap=timedelta(seconds=2),
    jitter=timedelta(milliseconds=500),
)
RECORD_EFFECT: Final = sa.text("INSERT INTO effects (job, generation) VALUES (:j, :g)")


class Script(BaseModel):
    """What a job does, run by run; the last step is repeated."""

    steps: list[str]
    seconds: float = 0.0
    progress: int = 0
    effect: bool = False
    children: int = 0


class Report(BaseModel):
    """A job's result."""

    runs: int


Answer = Report | Snooze | Cancel | Failed


async def _succeed(ctx: Context, script: Script) -> Answer:
    process = PROCESS.get()
    for part in range(script.progress):
        await process.world.sleep(script.seconds / script.progress)
        await ctx.progress(part + 1, script.progress)
    for _ in range(script.children):
        child = await ctx.submit("sim.work", Script(steps=["succeed"], effect=True))
        process.world.ledger.acknowledge(child.id)
    return Report(runs=process.world.runs[ctx.job.id])


async def _fail(_ctx: Context, _script: Script) -> Answer:
    raise TransientError("failed on purpose")


async def _give_up(_ctx: Context, _script: Script) -> Answer:
    raise PermanentError("failed for good")


async def _throttle(_ctx: Context, _script: Script) -> Answer:
    raise Throttled("come back later", retry_after=0.7)


async def _snooze(_ctx: Context, _script: Script) -> Answer:
    return Snooze(timedelta(seconds=0.4))


async def _drop(_ctx: Context, _script: Script) -> Answer:
    return Cancel("pointless")


async def _outlive_lease(ctx: Context, script: Script) -> Answer:
    await PROCESS.get().world.sleep(1.5 * LEASE)
    return await _succeed(ctx, script)


async def _outlive_timeout(ctx: Context, script: Script) -> Answer:
    await PROCESS.get().world.sleep(1.5 * TIMEOUT.total_seconds())
    return await _succeed(ctx, script)


async def _ignore_cancel(ctx: Context, script: Script) -> Answer:
    with suppress(asyncio.CancelledError):
        await PROCESS.get().world.sleep(1.5 * TIMEOUT.total_seconds())
    return await _succeed(ctx, script)


async def _break_settlement(ctx: Context, script: Script) -> Answer:
    def refuse(_tx: Transaction) -> None:
        raise ValueError("not today")

    ctx.at_settlement(refuse)
    return await _succeed(ctx, script)


async def _kill_process(_ctx: Context, _script: Script) -> Answer:
    PROCESS.get().crash("handler")


STEPS: Final[Mapping[str, Callable[[Context, Script], Awaitable[Answer]]]] = {
    "succeed": _succeed,
    "fail": _fail,
    "give up": _give_up,
    "throttle": _throttle,
    "snooze": _snooze,
    "drop": _drop,
    "outlive lease": _outlive_lease,
    "outlive timeout": _outlive_timeout,
    "ignore cancel": _ignore_cancel,
    "break settlement": _break_settlement,
    "kill process": _kill_process,
}


async def _perform(ctx: Context, script: Script) -> Answer:
    world, job = PROCESS.get().world, ctx.job
    run = world.runs[job.id]
    world.runs[job.id] += 1
    step = script.steps[min(run, len(script.steps) - 1)]
    world.note("run", job.id, job.attempt, step)
    if script.effect:
        ctx.at_settlement(
            lambda tx: tx.connection.execute(
                RECORD_EFFECT, {"j": job.id, "g": job.generation}
            )
        )
    return await STEPS[step](ctx, script)


def _capability(name: str, queue: str) -> Capability[Any, Any]:
    @capability(name, queue=queue, timeout=TIMEOUT, retry=RETRY)
    async def perform(ctx: Context, value: Script) -> Report | Snooze | Cancel | Failed:
        return await _perform(ctx, value)

    return perform


CAPABILITIES: Final = Registry(
    [_capability("sim.work", "main"), _capability("sim.other", "other")]
)
