"""The work of a simulation: a script says what each run of a job does."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import sqlalchemy as sa
from pydantic import BaseModel

from backburner.domain.errors import (
    CallerError,
    ClaimLost,
    PermanentError,
    StoreUnavailable,
    Throttled,
    TransientError,
)
from backburner.domain.groups.flow import Edge
from backburner.domain.jobs.job import Submitted
from backburner.domain.jobs.outcome import Cancel, Failed, Snooze
from backburner.domain.jobs.retry import RetryPolicy
from backburner.domain.webhooks import delivery
from backburner.engine.flow import Flow
from backburner.engine.registry import Capability, Registry, capability
from backburner.engine.run.context import Context
from backburner.engine.run.services import JobInfo
from backburner.engine.run.waiting import WaitTimedOut
from backburner.engine.submit.submission import LOCAL
from backburner.engine.transaction import Transaction
from backburner.testing.simulation.patience import NONE, SIGNAL
from backburner.testing.simulation.process import PROCESS
from backburner.testing.simulation.world import LEASE

TIMEOUT: Final = timedelta(seconds=2 * LEASE)
RETRY: Final = RetryPolicy(
    base=timedelta(milliseconds=200),
    cap=timedelta(seconds=2),
    jitter=timedelta(milliseconds=500),
)
NOTED: Final = "noted"
_RECORD_NOTE: Final = sa.text("INSERT INTO notes (job) VALUES (:j)")
RECORD_WRITE: Final = sa.text("""
INSERT INTO writes (job, is_held) VALUES (:j, coalesce(
  (SELECT state = 'running' AND token = :t FROM jobs WHERE id = :j), 0))
""")
RECORD_EFFECT: Final = sa.text("INSERT INTO effects (job, generation) VALUES (:j, :g)")


class Added(BaseModel):
    """A step that another step adds to its flow."""

    steps: list[str]
    after: list[str] = []
    """Existing steps that it follows."""
    follows: bool = False
    """Whether it follows the previously added step."""
    continues: bool = False
    """Whether it runs even if its prerequisites fail."""
    before: list[str] = []
    """Steps that will depend on it."""


class Script(BaseModel):
    """What a job does, run by run; the last entry is repeated."""

    steps: list[str]
    seconds: float = 0.0
    progress: int = 0
    effect: bool = False
    children: int = 0
    writes: int = 0
    """The number of transactions it commits, each with a job, flow or batch."""
    text: str = ""
    """
    How the result differs from the streamed text, a key of `TEXTS`; empty: the result
    is a `Report`.
    """
    adds: list[Added] = []
    waits: str = ""
    """What it waits for first: `sleep`, `signal` or `limit`."""


class Report(BaseModel):
    """A job's result."""

    runs: int


Answer = Report | str | Snooze | Cancel | Failed


async def _succeed(ctx: Context, script: Script) -> Answer:
    process = PROCESS.get()
    for part in range(script.progress):
        await process.world.sleep(script.seconds / script.progress)
        await ctx.progress(part + 1, script.progress)
        await _write(ctx, script, f"part {part}, ")
    for _ in range(script.children):
        child = await ctx.submit("sim.work", Script(steps=["succeed"], effect=True))
        process.world.ledger.acknowledge(child.id)
    if script.writes:
        # Like a handler whose write must not be interrupted by a cancellation.
        error = await asyncio.shield(process.spawn(_write_all(ctx, script.writes)))
        if error is not None:
            raise error
    if ctx.job.step is not None:
        _extend(ctx, script)
    await _write(ctx, script, "end")
    if script.text:
        return TEXTS[script.text](ctx.text)
    return Report(runs=process.world.runs[ctx.job.id])


async def _write_all(ctx: Context, times: int) -> Exception | None:
    """Commit transactions one after the other; return the error that stopped them."""
    world = PROCESS.get().world
    try:
        for _ in range(times):
            await world.sleep(world.pen.pause())
            kind = world.pen.lots.choice([*SUBMITTING])
            world.ledger.acknowledge(await ctx.transact(_write_down(ctx, kind)))
    except (CallerError, ClaimLost, StoreUnavailable) as error:
        return error
    return None


def note(tx: Transaction, subject: str) -> None:
    """Record what a transaction submits: write a row and publish an event."""
    tx.connection.execute(_RECORD_NOTE, {"j": subject})
    tx.publish("notes", "noted", {"id": subject}, to=LOCAL)


def _write_down(ctx: Context, kind: str) -> Callable[[Transaction], str]:
    """Return a body that records whether the job is held, and submits something."""
    claim = ctx._claim  # noqa: SLF001 - only the claim has the token

    def body(tx: Transaction) -> str:
        tx.connection.execute(RECORD_WRITE, {"j": claim.id, "t": claim.token})
        made = SUBMITTING[kind](tx)
        note(tx, made.id)
        return made.id

    return body


def _submit_job(tx: Transaction) -> Submitted:
    return tx.submit("sim.work", Script(steps=["succeed"]), tags=[NOTED])


def _submit_flow(tx: Transaction) -> Submitted:
    return tx.submit_flow(_two_steps(), tags=[NOTED])


def _open_batch(tx: Transaction) -> Submitted:
    jobs = [("sim.work", Script(steps=["succeed"]))]
    return tx.open_batch(jobs, [_two_steps()], tags=[NOTED])


def _fill_batch(tx: Transaction) -> Submitted:
    batch = tx.open_batch(sealed=False, tags=[NOTED])
    tx.add_to_batch(batch.id, [("sim.work", Script(steps=["succeed"]))], seal=True)
    return batch


def _two_steps() -> Flow:
    flow = Flow()
    first = flow.add("sim.work", Script(steps=["succeed"]))
    flow.add("sim.work", Script(steps=["succeed"]), after=[first])
    return flow


SUBMITTING: Final[Mapping[str, Callable[[Transaction], Submitted]]] = {
    "job": _submit_job,
    "flow": _submit_flow,
    "batch": _open_batch,
    "members": _fill_batch,
}


def _extend(ctx: Context, script: Script) -> None:
    last: list[str] = []
    for added in script.adds:
        names = [*added.after, *(last if added.follows else ())]
        planned = ctx.flow.add(
            "sim.work",
            Script(steps=added.steps, effect=True),
            after=[Edge(name, added.continues) for name in names],
            before=added.before,
        )
        last = [planned.name]


async def _write(ctx: Context, script: Script, text: str) -> None:
    if script.text:
        await ctx.emit(text)


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


LONG: Final = frozenset({"outlive lease", "outlive timeout", "ignore cancel"})
"""Steps that take long, so they run once."""

TEXTS: Final[Mapping[str, Callable[[str], str]]] = {
    "same": lambda text: text,
    "longer": lambda text: f"{text}, and more",
    "other": lambda text: f"no, {text}",
}


def _leave_effect(job: JobInfo, tx: Transaction) -> None:
    """Write a row and publish an event: both must exist, or neither."""
    tx.connection.execute(RECORD_EFFECT, {"j": job.id, "g": job.generation})
    said = {"job": job.id, "generation": job.generation}
    tx.publish("effects", "effect:left", said, to=job.owner)


async def _wait(ctx: Context, script: Script) -> None:
    """Wait for a time, for a signal, or for a signal with a timeout."""
    world, job = PROCESS.get().world, ctx.job
    run = partial(world.patience.run_step, world.disk, job.id)
    await ctx.step("before", run, "before")
    if script.waits == "sleep":
        await ctx.sleep(0.4)
    else:
        limit = 1.5 if script.waits == "limit" else None
        try:
            value = await ctx.wait(SIGNAL, timeout=limit, into=int)
        except WaitTimedOut:
            value = NONE
        world.patience.get(job.id, job.generation, value)
    await ctx.step("after", run, "after")


async def _perform(ctx: Context, script: Script) -> Answer:
    if script.waits:
        await _wait(ctx, script)
    world, job = PROCESS.get().world, ctx.job
    run = world.runs[job.id]
    world.runs[job.id] += 1
    step = script.steps[min(run, len(script.steps) - 1)]
    world.note("run", job.id, job.attempt, step)
    await _write(ctx, script, f"run {run}: ")
    used = world.purse.use()
    if used is not None:
        ctx.used("sim", input_tokens=used, output_tokens=0)
    if script.effect:
        ctx.at_settlement(partial(_leave_effect, job))
    return await STEPS[step](ctx, script)


def _capability(name: str, queue: str) -> Capability[Any, Any]:
    @capability(name, queue=queue, timeout=TIMEOUT, retry=RETRY)
    async def perform(
        ctx: Context, value: Script
    ) -> Report | str | Snooze | Cancel | Failed:
        return await _perform(ctx, value)

    return perform


@capability("sim.take", queue="main", timeout=TIMEOUT, retry=RETRY)
async def take(ctx: Context, value: Any) -> Any:
    """Check that the input consists of the prerequisites' outputs, and return it."""
    needed = {name: given.output for name, given in ctx.needs.items()}
    expected = needed if len(needed) > 1 else next(iter(needed.values()), None)
    if value != expected:
        told = f"{ctx.job.id} took {value!r}, its prerequisites gave {expected!r}"
        PROCESS.get().world.protest(told)
    return value


@capability("sim.done", queue="other", timeout=TIMEOUT, retry=RETRY)
async def follow(ctx: Context, _value: dict[str, Any]) -> Report:
    """Run as the completion of a batch."""
    return Report(runs=PROCESS.get().world.runs[ctx.job.id])


@capability(delivery.CAPABILITY, queue=delivery.QUEUE, timeout=TIMEOUT, retry=RETRY)
async def deliver(
    ctx: Context, value: dict[str, Any]
) -> Report | str | Snooze | Cancel | Failed:
    """Deliver to a receiver that does what its URL says."""
    return await _perform(ctx, Script(steps=value["callback"]["url"].split(",")))


CAPABILITIES: Final = Registry(
    [
        _capability("sim.work", "main"),
        _capability("sim.other", "other"),
        take,
        follow,
        deliver,
    ]
)
