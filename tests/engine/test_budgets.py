"""What budgets mean: prices, ceilings, children, schedules and batches."""

from contextlib import suppress
from datetime import timedelta
from decimal import Decimal

import pytest

from backburner import (
    Budget,
    BudgetExhausted,
    Context,
    JobState,
    PermanentError,
    Schedule,
    capability,
)
from backburner.clock import SystemDice
from backburner.domain.costs.budget import Balance
from backburner.engine.groups import batches
from backburner.engine.maintenance.scheduler import Scheduler
from backburner.engine.registry import Registry
from backburner.engine.submit.submission import Submission
from backburner.ports.faults import NoFaults
from backburner.ports.store.maintenance import JobFilter
from backburner.stores.sqlite.database import Database
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.doubles import FrozenClock, SilentNotifier

PRICES = '{"models": {"m": {"input": 1, "output": 2, "ceiling": 800}}}'
MONEY = Budget("tenant", money=Decimal("0.0020"))


@capability("ask", tokens=1_000, model="m", max_attempts=1)
async def ask(ctx: Context, _value: None) -> None:
    ctx.used("m", input_tokens=500, output_tokens=100)


@capability("plain", max_attempts=1)
async def plain(_ctx: Context, _value: None) -> None:
    """Say nothing of what it costs."""


@capability("parent", tokens=1, max_attempts=1)
async def parent(ctx: Context, _value: None) -> None:
    await ctx.submit("ask", None)


@capability("try", tokens=300, max_attempts=1)
async def attempt(ctx: Context, used: int) -> int:
    if used:
        ctx.used("m", input_tokens=used, output_tokens=0)
    if used > 100:
        raise PermanentError("too much")
    return used


@capability("broken", tokens=1_000, model="m", max_attempts=1)
async def broken(_ctx: Context, _value: None) -> None:
    raise PermanentError("before it asked anybody")


async def balance(backburner):
    [state] = await backburner.budgets.accounts()
    return state.balance


async def test_money_is_held_by_the_dearest_kind_and_settled_by_the_price(backburner):
    async with backburner(ask, prices=PRICES) as bb:
        await bb.budgets.put(MONEY)
        ticket = await bb.submit(ask, None)
        held = await balance(bb)
        with pytest.raises(BudgetExhausted, match=r"0\.000400 of 0\.002000 dollars"):
            await bb.submit(ask, None)
        await bb.start_worker()
        await ticket.wait()

        assert Balance(held=1_600) == held, "800 tokens, as many as the model takes"
        assert Balance(settled=700) == await balance(bb)


async def test_an_instance_declares_its_budgets_and_others_keep_to_them(
    backburner, path
):
    assert path
    async with backburner(ask) as declaring, backburner(ask) as other:
        await declaring.budgets.declare([Budget("user", tokens=999)])
        other.engine.store.rulebook.forget()

        with pytest.raises(BudgetExhausted):
            await other.submit(ask, None)


async def test_a_handler_is_told_that_its_child_is_over_budget(working):
    bb = await working(parent, ask)
    await bb.budgets.put(Budget("user", tokens=500))
    ended = await (await bb.submit(parent, None)).wait()

    assert JobState.FAILED is ended.state
    assert Balance() == await balance(bb), "a job that used nothing pays nothing"


async def test_what_runs_without_a_job_is_held_and_paid_for_as_a_job_is(backburner):
    async with backburner(ask, attempt, prices=PRICES) as bb:
        await bb.budgets.put(Budget("user", tokens=1_000))
        spent = [await balance_after(bb, used) for used in (90, 110, 0)]
        with pytest.raises(BudgetExhausted):
            await bb.run(ask, None)

        assert [90, 200, 500] == spent, "a failure's use, and an estimate for none told"
        assert Balance(settled=500) == await balance(bb), "nothing is left held"


async def balance_after(bb, used):
    """Run it without a job; return what is settled then."""
    with suppress(PermanentError):
        await bb.run(attempt, used)
    return (await balance(bb)).settled


async def test_what_runs_without_a_job_pays_money_and_gives_back_what_failed(
    backburner,
):
    async with backburner(ask, broken, prices=PRICES) as bb:
        await bb.budgets.put(MONEY)
        with pytest.raises(PermanentError):
            await bb.run(broken, None)
        freed = await balance(bb)
        await bb.run(ask, None)

        assert (Balance(), Balance(settled=700)) == (freed, await balance(bb))


async def test_a_batch_ends_when_there_is_room_for_what_follows_it(working):
    bb = await working(ask, plain)
    await bb.budgets.put(Budget("capability", tokens=0, of="plain"))
    batch = await bb.open_batch(
        [(ask, None)], completion={"capability": "plain", "input": None}
    )
    waiting = await bb.engine.batches.wait(batch.id, timeout=0.5)
    await bb.budgets.drop(Budget("capability", tokens=0, of="plain"))
    finished = await bb.engine.batches.wait(batch.id, timeout=60)

    assert ("open", "finished") == (str(waiting.state), str(finished.state))
    follows = JobFilter(capability="plain")
    assert 1 == len(await bb.engine.jobs(follows)), "what follows it was lost"


async def test_a_batch_that_cannot_end_keeps_no_other_from_it(working, monkeypatch):
    monkeypatch.setattr(batches, "PAGE", 1)
    bb = await working(ask, plain)
    await bb.budgets.put(Budget("capability", tokens=0, of="plain"))
    follows = {"capability": "plain", "input": None}
    stuck = await bb.open_batch([(ask, None)], completion=follows)
    await bb.engine.batches.wait(stuck.id, timeout=0.5)
    free = await bb.open_batch([(ask, None)])
    ended = await bb.engine.batches.wait(free.id, timeout=60)
    waiting = await bb.engine.batches.find(stuck.id)

    assert ("open", "finished") == (str(waiting.state), str(ended.state))


async def test_a_tick_that_has_no_room_is_missed_and_the_next_one_comes(tmp_path):
    clock = FrozenClock()
    store = SqliteStore(Database(tmp_path / "jobs.db"), clock)
    await store.open()
    submission = Submission(Registry([ask]), clock, SystemDice())
    nightly = Schedule("nightly", "* * * * *", ask)
    scheduler = Scheduler(store, SilentNotifier(), NoFaults(), submission, [nightly])
    await store.put_budgets([Budget("user", tokens=999)])
    await scheduler.fire()
    clock.advance(timedelta(minutes=1))
    await scheduler.fire()
    missed = await store.jobs(JobFilter(), before=None, limit=9)
    _, [state] = await store.schedules()
    await store.put_budgets([Budget("user", tokens=1_000)])
    clock.advance(timedelta(minutes=1))
    await scheduler.fire()
    fired = await store.jobs(JobFilter(), before=None, limit=9)
    await store.close()

    assert [] == list(missed)
    assert state.next_at > clock.now() - 60_000
    assert 1 == len(fired)
