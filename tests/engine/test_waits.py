"""Waits of handlers: the slot is free, no attempt is used, nothing is run twice."""

import asyncio
from datetime import UTC, datetime, timedelta

import orjson
import pytest
from pydantic import BaseModel

from backburner import (
    Backburner,
    Budget,
    BudgetExhausted,
    ChildFailed,
    Context,
    Flow,
    InvalidInput,
    JobFailed,
    JobState,
    Lane,
    PermanentError,
    SignalConflict,
    SignalTooLarge,
    WaitTimedOut,
    capability,
)
from backburner.ai.mock import Mock
from backburner.clock import SystemClock
from backburner.domain.costs.budget import Balance
from backburner.domain.groups.batch import BatchState
from backburner.domain.groups.flow import FlowState
from backburner.domain.jobs.job import Submitted, WaitReason
from backburner.domain.jobs.wait import Signal
from backburner.engine.ticket import Ticket
from backburner.ports.ai import Reply, Tokens
from backburner.ports.store.maintenance import JobFilter
from backburner.settings import Settings
from backburner.stores import migrations
from backburner.testing.broker.acts import pause
from tests.store.moving import a_store, write

pytestmark = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
SETTINGS = {"grace_seconds": 0, "poll_seconds": 0.2, "slots": 2}
LONG = timedelta(days=30)


class Payment(BaseModel):
    amount: int


@pytest.fixture
async def running(store_url):
    """Open a process that works on handlers."""
    opened = []

    async def start(*capabilities, is_working=True, **settings):
        backburner = Backburner(
            Settings(store=store_url, **{**SETTINGS, **settings}),
            capabilities=capabilities,
        )
        await backburner.__aenter__()
        opened.append(backburner)
        if is_working:
            await backburner.start_worker()
        return backburner

    yield start
    for backburner in opened:
        await backburner.__aexit__(None, None, None)


async def until(backburner, ticket, *states):
    """Return the job when it is in one of these states."""
    job = await ticket.job()
    events = backburner.engine.events(job)
    async for _ in events:
        job = await ticket.job()
        if job.state in states:
            break
    await events.aclose()
    return job


async def test_a_sleep_frees_the_slot_costs_no_attempt_and_is_passed(running):
    runs = []

    @capability("sleeper", max_attempts=1)
    async def sleeper(ctx: Context, _value: int) -> str:
        runs.append(await ctx.step("before", lambda: len(runs)))
        await ctx.sleep(0.3)
        await ctx.sleep(timedelta(seconds=0.3))
        return f"slept {ctx.job.attempt}"

    backburner = await running(sleeper)
    ticket = await backburner.submit(sleeper, 1)
    job = await until(backburner, ticket, JobState.SCHEDULED)
    assert (WaitReason.SLEEP, None) == job.wait[:2]
    assert job.wait.until <= job.run_at, "or later, if the settlement took long"
    assert (0, 0) == (job.attempt, job.throttled)
    assert "slept 1" == await ticket.result()
    assert [0, 0, 0] == runs
    assert (await ticket.job()).wait is None


async def test_branches_of_a_handler_may_wait_for_the_same_signal(running):
    @capability("branches", max_attempts=1)
    async def branches(ctx: Context, _value: int) -> list[str]:
        return await asyncio.gather(*(ctx.wait("go", into=str) for _ in range(2)))

    backburner = await running(branches)
    ticket = await backburner.submit(branches, 1)
    await until(backburner, ticket, JobState.WAITING)
    await backburner.signal(ticket.id, "go", "on")
    assert ["on", "on"] == await ticket.result()


async def test_the_first_run_decides_how_long_a_sleep_takes(running):
    spans = [30 * 86_400.0, 0.0]

    @capability("sleeper")
    async def sleeper(ctx: Context, _value: int) -> None:
        await ctx.sleep(spans.pop(0) if spans else 0)

    backburner = await running(sleeper)
    ticket = await backburner.submit(sleeper, 1)
    first = await until(backburner, ticket, JobState.SCHEDULED)
    # Somebody has it run early: it goes on sleeping until the stored time.
    await backburner.engine.store.promote(now=first.run_at, limit=10)
    job = await ticket.job()
    again = await until(backburner, ticket, JobState.SCHEDULED)
    while again.events <= job.events:
        again = await until(backburner, ticket, JobState.SCHEDULED)
    assert first.wait == again.wait


async def test_jobs_that_wait_leave_the_slots_to_others(running):
    @capability("waiter", queue="q")
    async def waiter(ctx: Context, value: int) -> int:
        return (await ctx.wait("paid", into=Payment)).amount + value

    @capability("other", queue="q")
    async def other(_ctx: Context, value: int) -> int:
        return value

    backburner = await running(waiter, other)
    tickets = [await backburner.submit(waiter, n) for n in range(6)]
    for ticket in tickets:
        job = await until(backburner, ticket, JobState.WAITING)
        assert (WaitReason.SIGNAL, "paid", None) == tuple(job.wait)
        assert (0, None) == (job.attempt, job.run_at)
    assert 7 == await (await backburner.submit(other, 7)).result()
    for ticket in tickets:
        assert await backburner.signal(ticket.id, "paid", {"amount": 10})
    assert [10, 11, 12, 13, 14, 15] == [await ticket.result() for ticket in tickets]


async def test_a_signal_may_come_before_its_wait(running):
    gate = asyncio.Event()

    @capability("waiter")
    async def waiter(ctx: Context, _value: int) -> list[int]:
        await gate.wait()
        first = await ctx.wait("go")
        return [first, await ctx.wait("go")]

    backburner = await running(waiter)
    early = await backburner.submit(waiter, 1, delay=timedelta(seconds=0.1))
    assert await backburner.signal(early.id, "go", 1)
    running_one = await backburner.submit(waiter, 2)
    await until(backburner, running_one, JobState.RUNNING)
    assert await backburner.signal(running_one.id, "go", 2)
    gate.set()
    assert [[1, 1], [2, 2]] == [await early.result(), await running_one.result()]


async def test_a_signal_between_the_last_look_and_the_end_of_the_run(running):
    looked, told = asyncio.Event(), asyncio.Event()

    @capability("waiter")
    async def waiter(ctx: Context, _value: int) -> str:
        try:
            return await ctx.wait("go", into=str)
        except BaseException:
            looked.set()
            await told.wait()
            raise

    backburner = await running(waiter)
    ticket = await backburner.submit(waiter, 1)
    await looked.wait()
    assert await backburner.signal(ticket.id, "go", "now")
    told.set()
    assert "now" == await ticket.result()
    kinds = [e.type async for e in backburner.engine.events(await ticket.job())]
    assert "job.waiting" not in kinds
    assert "job.signalled" in kinds


async def test_the_first_value_stays_and_is_told_from_others(running):
    @capability("waiter")
    async def waiter(ctx: Context, _value: int) -> object:
        return await ctx.wait("go")

    backburner = await running(waiter, is_working=False)
    ticket = await backburner.submit(waiter, 1)
    assert await backburner.signal(ticket.id, "go", {"b": 1, "a": [2]})
    assert not await backburner.signal(ticket.id, "go", {"a": [2], "b": 1})
    with pytest.raises(SignalConflict, match="another value"):
        await backburner.signal(ticket.id, "go", {"a": 1})
    with pytest.raises(SignalTooLarge):
        await backburner.signal(ticket.id, "more", "x" * 65_536)
    await backburner.start_worker()
    assert {"a": [2], "b": 1} == await ticket.result()
    with pytest.raises(SignalConflict, match="has ended"):
        await backburner.signal(ticket.id, "go", {"b": 1, "a": [2]})


async def test_a_wait_that_times_out_raises_and_is_too_late_to_signal(running):
    decided, go_on = asyncio.Event(), asyncio.Event()

    @capability("waiter", max_attempts=1)
    async def waiter(ctx: Context, _value: int) -> str:
        try:
            return await ctx.wait("go", timeout=0.2, into=str)
        except WaitTimedOut:
            decided.set()
            await go_on.wait()
            return "nobody"

    backburner = await running(waiter)
    ticket = await backburner.submit(waiter, 1)
    job = await until(backburner, ticket, JobState.WAITING)
    assert job.wait.until == job.run_at
    await decided.wait()
    with pytest.raises(SignalConflict, match="timed out"):
        await backburner.signal(ticket.id, "go", "late")
    go_on.set()
    assert "nobody" == await ticket.result()


async def test_a_time_out_that_nobody_catches_fails_the_job_and_a_retry_waits(running):
    @capability("waiter", max_attempts=1)
    async def waiter(ctx: Context, _value: int) -> str:
        return await ctx.wait("go", timeout=0.1, into=str)

    backburner = await running(waiter)
    ticket = await backburner.submit(waiter, 1)
    with pytest.raises(JobFailed):
        await ticket.result()
    assert "WAIT_TIMEOUT" == (await ticket.job()).error.code
    await backburner.retry(ticket.id)
    await until(backburner, ticket, JobState.WAITING)
    assert await backburner.signal(ticket.id, "go", "yes")
    assert "yes" == await ticket.result()


async def test_a_retry_gets_the_signal_of_before_unless_it_starts_afresh(running):
    fails = [True, True]

    @capability("waiter", max_attempts=1)
    async def waiter(ctx: Context, _value: int) -> str:
        told = await ctx.wait("go", into=str)
        if fails and fails.pop():
            raise PermanentError("not yet")
        return told

    backburner = await running(waiter)
    ticket = await backburner.submit(waiter, 1)
    await backburner.signal(ticket.id, "go", "first")
    with pytest.raises(JobFailed):
        await ticket.result()
    await backburner.retry(ticket.id)
    with pytest.raises(JobFailed):
        await ticket.result()
    await backburner.engine.retry(ticket.id, fresh=True)
    await until(backburner, ticket, JobState.WAITING)
    await backburner.signal(ticket.id, "go", "second")
    assert "second" == await ticket.result()


async def test_a_waiting_job_can_be_cancelled_and_expires_at_its_deadline(running):
    @capability("waiter")
    async def waiter(ctx: Context, _value: int) -> str:
        return await ctx.wait("go", timeout=LONG, into=str)

    backburner = await running(waiter)
    cancelled = await backburner.submit(waiter, 1)
    await until(backburner, cancelled, JobState.WAITING)
    assert JobState.CANCELLED is (await backburner.cancel(cancelled.id)).state
    with pytest.raises(SignalConflict):
        await backburner.signal(cancelled.id, "go", 1)
    soon = datetime.fromtimestamp(backburner.engine.now() / 1000 + 1, UTC)
    expiring = await backburner.submit(waiter, 1, deadline=soon)
    await until(backburner, expiring, JobState.WAITING)
    with pytest.raises(JobFailed):
        await expiring.result()
    assert "EXPIRED" == (await expiring.job()).error.code


async def test_concurrent_waits_all_come_back(running):
    @capability("waiter")
    async def waiter(ctx: Context, _value: int) -> list[str]:
        names = ("a", "b", "c")
        return await asyncio.gather(*(ctx.wait(name, into=str) for name in names))

    @capability("grouped")
    async def grouped(ctx: Context, _value: int) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.wait(n, into=str)) for n in ("a", "b")]
        return [task.result() for task in tasks]

    backburner = await running(waiter, grouped)
    ticket = await backburner.submit(waiter, 1)
    await until(backburner, ticket, JobState.WAITING)
    for name in ("c", "a", "b"):
        await backburner.signal(ticket.id, name, name.upper())
    assert ["A", "B", "C"] == await ticket.result()
    ticket = await backburner.submit(grouped, 1)
    await until(backburner, ticket, JobState.WAITING)
    for name in ("b", "a"):
        await backburner.signal(ticket.id, name, name.upper())
    assert ["A", "B"] == await ticket.result()


@pytest.mark.parametrize("is_first", [True, False])
async def test_of_concurrent_waits_the_first_to_time_out_starts_the_job(
    running, is_first
):
    @capability("waiter", max_attempts=1)
    async def waiter(ctx: Context, _value: int) -> list[str]:
        both = [ctx.wait("a", into=str), ctx.wait("b", timeout=0.2, into=str)]
        return await asyncio.gather(*(both[::-1] if is_first else both))

    backburner = await running(waiter)
    ticket = await backburner.submit(waiter, 1)
    with pytest.raises(JobFailed, match="WAIT_TIMEOUT"):
        await ticket.result(8)


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_signal_starts_a_job_that_sleeps_as_well(running, is_first):
    come = asyncio.Event()

    @capability("sleeper")
    async def sleeper(ctx: Context, _value: int) -> None:
        async def told() -> None:
            await ctx.wait("go", into=str)
            come.set()

        both = [told(), ctx.sleep(LONG)]
        await asyncio.gather(*(both[::-1] if is_first else both))

    backburner = await running(sleeper)
    ticket = await backburner.submit(sleeper, 1)
    job = await until(backburner, ticket, JobState.WAITING, JobState.SCHEDULED)
    assert (WaitReason.SIGNAL, "go", None) == tuple(job.wait)
    await backburner.signal(ticket.id, "go", "told")
    async with asyncio.timeout(8):
        await come.wait()
    asleep = await until(backburner, ticket, JobState.SCHEDULED)
    assert WaitReason.SLEEP is asleep.wait.reason
    assert job.run_at == asleep.run_at


async def test_a_sleep_beside_a_wait_ends_at_its_time(running):
    @capability("waiter")
    async def waiter(ctx: Context, _value: int) -> None:
        async def remind() -> None:
            await ctx.sleep(0.3)
            raise PermanentError("the sleep is over", code="OVER")

        await asyncio.gather(ctx.wait("go"), remind())

    backburner = await running(waiter)
    ticket = await backburner.submit(waiter, 1)
    with pytest.raises(JobFailed, match="OVER"):
        await ticket.result(8)


async def test_a_handler_that_catches_its_errors_is_suspended_all_the_same(running):
    @capability("careful")
    async def careful(ctx: Context, _value: int) -> str:
        try:
            return await ctx.wait("go", into=str)
        except Exception:  # noqa: BLE001 - what a careless handler does
            return "caught"

    backburner = await running(careful)
    ticket = await backburner.submit(careful, 1)
    await until(backburner, ticket, JobState.WAITING)
    await backburner.signal(ticket.id, "go", "told")
    assert "told" == await ticket.result()


@pytest.mark.parametrize("span", [-1, float("nan"), float("inf"), 1e12, "soon"])
async def test_a_span_that_is_none_fails_the_job(running, span):
    @capability("sleeper", max_attempts=1)
    async def sleeper(ctx: Context, _value: int) -> None:
        await ctx.sleep(span)

    backburner = await running(sleeper)
    ticket = await backburner.submit(sleeper, 1)
    with pytest.raises(JobFailed):
        await ticket.result()
    assert "WAIT_SPAN" == (await ticket.job()).error.code


class Paced(Mock):
    """A provider with a lane that counts its calls."""

    is_paced = True

    def __init__(self):
        super().__init__(SystemClock())
        self.name = "acme"
        self.calls = []

    async def chat(self, chat, _hear=None):
        self.calls.append(chat.messages[-1].text)
        return Reply(f"answer {len(self.calls)}", chat.model, Tokens(60, 40))


@pytest.fixture
async def paced(store_url):
    """Open a process whose model calls go by a lane with a spacing."""
    opened = []

    async def start(one, provider, spacing, **settings):
        hasty = {"lane_patience_seconds": 0.05, "throttle_limit_hours": 0.0001}
        backburner = Backburner(
            Settings(store=store_url, **{**SETTINGS, **hasty, **settings}),
            capabilities=[one],
            lanes=[Lane("acme/mock", spacing=timedelta(seconds=spacing))],
            ai=provider,
        )
        await backburner.__aenter__()
        opened.append(backburner)
        await backburner.start_worker()
        return backburner

    yield start
    for backburner in opened:
        await backburner.__aexit__(None, None, None)


@capability("two-calls", max_attempts=1, tokens=200)
async def two_calls(ctx: Context, value: str) -> list[str]:
    """Ask a model twice."""
    return [await ctx.ask(value), await ctx.ask(value + " again")]


async def test_a_full_lane_after_a_paid_call_frees_the_slot_and_pays_once(paced):
    provider = Paced()
    backburner = await paced(two_calls, provider, 0.5)
    ticket = await backburner.submit(two_calls, "hello")
    events = backburner.engine.events(await ticket.job())
    [told] = [e.data["wait"] async for e in events if e.type == "job.scheduled"][:1]
    assert ("lane", "acme/mock") == (told["reason"], told["name"])
    assert ["answer 1", "answer 2"] == await ticket.result()
    assert ["hello", "hello again"] == provider.calls
    done = await ticket.job()
    assert (1, 0) == (done.attempt, done.throttled)
    assert 200 == (await backburner.engine.store.spent([done.seq]))[done.seq].tokens


async def test_many_jobs_with_two_calls_make_two_calls_each(paced):
    provider = Paced()
    backburner = await paced(two_calls, provider, 0.02, throttle_limit_hours=24)
    tickets = [await backburner.submit(two_calls, f"job {n}") for n in range(20)]
    for ticket in tickets:
        await ticket.result()
    assert 40 == len(provider.calls) == len({*provider.calls})


async def test_what_is_paid_for_and_not_stored_is_waited_for_in_place(paced):
    provider, runs = Paced(), []

    @capability("unremembered", max_attempts=1)
    async def unremembered(ctx: Context, value: str) -> list[str]:
        runs.append(1)
        first = await ctx.ask(value, remember=False)
        return [first, await ctx.ask(value, remember=False)]

    backburner = await paced(unremembered, provider, 0.5)
    ticket = await backburner.submit(unremembered, "hello")
    assert ["answer 1", "answer 2"] == await ticket.result()
    assert [1] == runs


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_signal_starts_a_job_whose_lane_is_full(paced, is_first):
    @capability("asks-beside", max_attempts=1, tokens=200)
    async def asks_beside(ctx: Context, value: str) -> list[str]:
        await ctx.ask(value)
        both = [ctx.ask(value + " again"), ctx.wait("go", into=str)]
        return await asyncio.gather(*(both[::-1] if is_first else both))

    backburner = await paced(asks_beside, Paced(), 3600)
    ticket = await backburner.submit(asks_beside, "hello")
    job = await until(backburner, ticket, JobState.WAITING, JobState.SCHEDULED)
    assert (JobState.WAITING, "go") == (job.state, job.wait.name)
    assert job.run_at is not None, "it waits for its turn, too"

    await backburner.signal(ticket.id, "go", "on")
    job = await until(backburner, ticket, JobState.SCHEDULED)

    assert WaitReason.LANE is job.wait.reason


class Doubled(BaseModel):
    value: int


class Answering(Paced):
    """A provider that answers when it may, and tells when it is asked."""

    def __init__(self):
        super().__init__()
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def chat(self, chat, _hear=None):
        answer = await super().chat(chat, _hear)
        self.asked.set()
        await self.may_answer.wait()
        return answer


@capability("beside", max_attempts=1, tokens=200)
async def beside(ctx: Context, value: str) -> list[str]:
    """Ask a model while it waits for a signal."""
    return await asyncio.gather(ctx.ask(value), ctx.wait("go", into=str))


async def test_a_model_call_beside_a_wait_is_paid_once(paced):
    provider = Answering()
    backburner = await paced(beside, provider, 0)
    await backburner.budgets.put(Budget("tenant", tokens=200))
    ticket = await backburner.submit(beside, "hello")
    await provider.asked.wait()
    # The wait is stored while the model answers; what is held for the call stays.
    while not await backburner.engine.waits_of((await ticket.job()).seq, most=0):
        await pause()
    with pytest.raises(BudgetExhausted):
        await backburner.budgets.reserve(1)
    provider.may_answer.set()
    await until(backburner, ticket, JobState.WAITING)
    await backburner.signal(ticket.id, "go", "on")

    assert ["answer 1", "on"] == await ticket.result()
    assert ["hello"] == provider.calls
    [account] = await backburner.budgets.accounts()
    assert Balance(settled=100) == account.balance


async def test_a_child_is_run_once_and_waited_for_without_a_slot(running):
    computed = []

    @capability("double")
    async def double(_ctx: Context, value: int) -> Doubled:
        computed.append(value)
        return Doubled(value=2 * value)

    @capability("parent", max_attempts=1)
    async def parent(ctx: Context, value: int) -> list[int]:
        first = await ctx.run(double, value)
        second = await ctx.run("double", first.value)
        both = await asyncio.gather(ctx.run(double, 7), ctx.run(double, 7))
        return [first.value, second["value"], *(one.value for one in both)]

    backburner = await running(double, parent, slots=1)
    ticket = await backburner.submit(parent, 1)
    assert [2, 4, 14, 14] == await ticket.result()
    assert [1, 2, 7, 7] == sorted(computed)
    assert 1 == (await ticket.job()).attempt


async def test_a_child_that_fails_is_told_to_its_parent(running):
    @capability("bad", max_attempts=1)
    async def bad(_ctx: Context, _value: int) -> int:
        raise PermanentError("broken", code="BROKEN")

    @capability("parent", max_attempts=1)
    async def parent(ctx: Context, value: int) -> str:
        try:
            await ctx.run(bad, value)
        except ChildFailed as failure:
            return failure.job.error.code
        return "no failure"

    backburner = await running(bad, parent)
    assert "BROKEN" == await (await backburner.submit(parent, 1)).result()


async def test_a_child_that_is_retried_is_waited_for_again(running):
    broken = [True]

    @capability("child", max_attempts=1)
    async def child(ctx: Context, _value: int) -> int:
        if broken:
            raise PermanentError("broken", code="BROKEN")
        return await ctx.wait("go", into=int)

    @capability("parent", max_attempts=1)
    async def parent(ctx: Context, value: int) -> int:
        return (await ctx.run("child", value)) + 1

    backburner = await running(child, parent)
    ticket = await backburner.submit(parent, 1)
    with pytest.raises(JobFailed):
        await ticket.result()
    [failed] = await backburner.engine.jobs(JobFilter(capability="child"))
    broken.clear()
    await backburner.retry(failed.id)
    await until(backburner, ticket_of(backburner, failed), JobState.WAITING)
    await backburner.retry(ticket.id)

    job = await until(backburner, ticket, JobState.WAITING, JobState.FAILED)
    assert (WaitReason.JOB, failed.id, None) == tuple(job.wait or (job.error,))
    await backburner.signal(failed.id, "go", 6)
    assert 7 == await ticket.result()


async def test_a_question_is_answered_once_or_the_default_is_taken(running):
    @capability("asks", max_attempts=1)
    async def asks(ctx: Context, value: int) -> list[object]:
        send = await ctx.ask_person("Send it?", choices=["yes", "no"])
        pay = await ctx.ask_person("How much?", into=Payment, name="amount")
        late = await ctx.ask_person("Late?", timeout=0, default="late")
        return [send, pay.amount, late, value]

    backburner = await running(asks)
    ticket = await backburner.submit(asks, 3)
    job = await until(backburner, ticket, JobState.WAITING)
    assert WaitReason.QUESTION is job.wait.reason
    [asked] = await backburner.questions()
    assert (ticket.id, job.wait.name) == (asked.job, asked.name)
    with pytest.raises(InvalidInput, match="yes, no"):
        await backburner.answer(ticket.id, asked.name, "maybe")
    assert await backburner.answer(ticket.id, asked.name, "yes")
    while (await until(backburner, ticket, JobState.WAITING)).wait.name != "amount":
        pass
    assert await backburner.answer(ticket.id, "amount", {"amount": "a lot"})
    while (await until(backburner, ticket, JobState.WAITING)).wait.name != "amount#2":
        pass
    [again] = await backburner.questions()
    assert "amount" in orjson.loads(again.question)["error"]
    assert await backburner.answer(ticket.id, "amount#2", {"amount": 5})
    assert ["yes", 5, "late", 3] == await ticket.result()
    assert not await backburner.questions()
    with pytest.raises(SignalConflict):
        await backburner.answer(ticket.id, "amount#2", {"amount": 5})


async def test_a_stored_answer_that_is_no_choice_is_discarded(running):
    @capability("asks", max_attempts=1)
    async def asks(ctx: Context, _value: int) -> str:
        return str(await ctx.ask_person("Send it?", choices=["yes", "no"], name="ok"))

    backburner = await running(asks)
    ticket = await backburner.submit(asks, 3)
    job = await until(backburner, ticket, JobState.WAITING)
    # The API refuses it; it may come from another release.
    wrong = Signal("ok", '"maybe"', is_answer=True)
    await backburner.engine.store.signal(job.seq, wrong)
    backburner.engine.woken(job)
    while (await until(backburner, ticket, JobState.WAITING)).wait.name != "ok#2":
        pass

    [again] = await backburner.questions()
    assert "choices" in orjson.loads(again.question)["error"]
    assert await backburner.answer(ticket.id, "ok#2", "no")
    assert "no" == await ticket.result()


async def test_steps_of_a_flow_and_members_of_a_batch_wait_like_other_jobs(running):
    @capability("waiter")
    async def waiter(ctx: Context, value: str) -> str:
        return f"{value} {await ctx.wait('go', into=str)}"

    backburner = await running(waiter)
    flow = Flow()
    first = flow.add(waiter, "one", name="first")
    flow.add(waiter, after=[first], name="second")
    flowing = await backburner.submit_flow(flow)
    batch = await backburner.open_batch([(waiter, "x"), (waiter, "y")], expected=2)
    for job in await backburner.engine.jobs(JobFilter(capability="waiter")):
        if job.state is not JobState.BLOCKED:
            await until(backburner, ticket_of(backburner, job), JobState.WAITING)
            await backburner.signal(job.id, "go", "on")
    second = (await flowing.steps())["second"]
    await until(backburner, ticket_of(backburner, second), JobState.WAITING)
    await backburner.signal(second.id, "go", "again")
    await batch.wait(30)

    assert {"first": "one on", "second": "one on again"} == await flowing.results()
    assert {"succeeded": 2} == (await batch.counts())["members"]


async def test_a_waiting_step_or_member_is_cancelled_with_its_group(running):
    @capability("waiter")
    async def waiter(ctx: Context, _value: str) -> str:
        return await ctx.wait("go", into=str)

    backburner = await running(waiter)
    flow, inner = Flow(), Flow()
    flow.add(waiter, after=[flow.add(waiter, "a", name="a")], name="b")
    inner.add(waiter, "c")
    flowing = await backburner.submit_flow(flow)
    batch = await backburner.open_batch([(waiter, "d")], flows=[inner])
    jobs = await backburner.engine.jobs(JobFilter(capability="waiter"))
    begun = [job for job in jobs if job.state is not JobState.BLOCKED]
    for job in begun:
        await until(backburner, ticket_of(backburner, job), JobState.WAITING)

    await flowing.cancel()
    await batch.cancel()
    assert (await batch.wait(30)).state is BatchState.FINISHED
    assert (await flowing.flow()).state is FlowState.CANCELLED
    assert {"cancelled": 2} == (await batch.counts())["members"]
    for job in begun:
        ended = await ticket_of(backburner, job).job()
        assert (JobState.CANCELLED, None) == (ended.state, ended.wait)
        with pytest.raises(SignalConflict):
            await backburner.signal(job.id, "go", "late")


async def test_a_step_whose_wait_times_out_ends_its_flow_and_waits_again(running):
    spans = [0.0, 60.0]

    @capability("waiter", max_attempts=1)
    async def waiter(ctx: Context, value: str) -> str:
        return value + await ctx.wait("go", timeout=spans[0], into=str)

    @capability("echo")
    async def echo(_ctx: Context, value: str) -> str:
        return value

    backburner = await running(waiter, echo)
    flow = Flow()
    flow.add(echo, after=[flow.add(waiter, "a ", name="first")], name="second")
    flowing = await backburner.submit_flow(flow)
    assert (await flowing.wait(30)).state is FlowState.FAILED
    steps = await flowing.steps()
    assert "WAIT_TIMEOUT" == steps["first"].error.code
    assert JobState.CANCELLED is steps["second"].state

    del spans[0]
    await flowing.retry()
    first = ticket_of(backburner, steps["first"])
    await until(backburner, first, JobState.WAITING)
    await backburner.signal(first.id, "go", "signal")
    assert {"first": "a signal", "second": "a signal"} == await flowing.results()


async def test_a_step_is_signalled_while_nobody_works_and_goes_on_elsewhere(running):
    @capability("waiter")
    async def waiter(ctx: Context, value: str) -> str:
        return f"{value} {await ctx.wait('go', into=str)}"

    gone = await running(waiter)
    flow = Flow()
    flow.add(waiter, after=[flow.add(waiter, "one", name="first")], name="second")
    flowing = await gone.submit_flow(flow)
    batch = await gone.open_batch([(waiter, "x")])
    first = (await flowing.steps())["first"]
    [member] = [
        job
        for job in await gone.engine.jobs(JobFilter(capability="waiter"))
        if job.batch is not None
    ]
    for job in (first, member):
        await until(gone, ticket_of(gone, job), JobState.WAITING)
    await gone.__aexit__(None, None, None)

    other = await running(waiter, is_working=False)
    second = (
        await other.engine.flows.steps(await other.engine.flows.find(flowing.id))
    )[1].job
    for job in (first, member, second):  # one of them has not begun
        assert await other.engine.signal(job.id, "go", "on")
        assert not await other.engine.signal(job.id, "go", "on")
    await other.start_worker()
    for job, output in ((second, "one on on"), (member, "x on")):
        assert output == await ticket_of(other, job).result()
    done = await other.engine.batches.wait(batch.id, timeout=30)
    assert BatchState.FINISHED is done.state


def ticket_of(backburner, job):
    return Ticket(Submitted(job.id, ""), backburner.engine)


async def test_a_job_waits_across_an_upgrade(store_url, running):
    @capability("waiter")
    async def waiter(ctx: Context, value: str) -> str:
        return f"{value} {await ctx.wait('go', into=str)}"

    before = await running(waiter)
    waiting = await before.submit(waiter, "old")
    await until(before, waiting, JobState.WAITING)
    await before.__aexit__(None, None, None)
    store = a_store(store_url)
    await write(store, lambda c: migrations.downgrade(c, "0021"))
    await store.migrate()
    await store.close()
    backburner = await running(waiter)
    await backburner.signal(waiting.id, "go", "new")

    assert "old new" == await ticket_of(backburner, waiting).result()


@capability("approved", tokens=600, max_attempts=1)
async def approved(ctx: Context, value: str) -> list[str]:
    """Ask a model, have somebody approve within a day, and ask once more."""
    first = await ctx.ask(value)
    await ctx.wait("approved", timeout=timedelta(days=1))
    return [first, await ctx.ask(value + " again")]


async def test_what_a_waiting_job_has_not_used_is_for_others(paced):
    provider = Paced()
    backburner = await paced(approved, provider, 0)
    await backburner.budgets.put(Budget("tenant", tokens=1_000))

    async def balance():
        [state] = await backburner.budgets.accounts()
        return state.balance

    ann = await backburner.submit(approved, "hello")
    held = await balance()
    await until(backburner, ann, JobState.WAITING)
    assert (Balance(held=600), Balance(settled=100)) == (held, await balance())
    with pytest.raises(BudgetExhausted):
        await backburner.budgets.reserve(901)
    bob = await backburner.budgets.reserve(900)

    await backburner.signal(ann.id, "approved", True)
    with pytest.raises(JobFailed):
        await ann.result()
    assert "OVER_BUDGET" == (await ann.job()).error.code
    assert Balance(held=900, settled=100) == await balance()

    await backburner.budgets.settle(bob.id, 300)
    await backburner.retry(ann.id)
    assert ["answer 1", "answer 2"] == await ann.result()
    assert ["hello", "hello again"] == provider.calls
    assert Balance(settled=500) == await balance()
