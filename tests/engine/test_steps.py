"""Steps of handlers: computed once for a job, whatever interrupts its runs."""

import asyncio
from datetime import timedelta

import pytest
from pydantic import BaseModel

from backburner import (
    NOT_DONE,
    Backburner,
    Context,
    IllegalTransition,
    JobFailed,
    PermanentError,
    RetryPolicy,
    TransientError,
    capability,
)
from backburner.clock import SystemClock
from backburner.domain.ai import CORRECTION, Trouble
from backburner.domain.events.event import STEP_CHANGED
from backburner.domain.jobs.step import StepResult
from backburner.engine.models.asking import Vectors
from backburner.ports.ai import Fault, Reply, Tokens
from backburner.settings import Settings
from backburner.stores.tables import jobs, step_results
from backburner.testing.broker.acts import pause
from tests.engine.conftest import SETTINGS, Counting

AT_ONCE = RetryPolicy(base=timedelta(), jitter=timedelta())


class Title(BaseModel):
    title: str


class Failing:
    """Fails at the first passings of a place, as often as it is told."""

    def __init__(self, times=1):
        self.left = times

    def __call__(self):
        if self.left:
            self.left -= 1
            raise TransientError("not yet")


async def test_a_failed_attempt_pays_for_no_answer_again(running):
    fail, provider = Failing(2), Counting()

    @capability("two", retry=AT_ONCE)
    async def two(ctx: Context, value: str) -> list[str]:
        first = await ctx.ask(value)
        second = await ctx.ask("second", into=Title)
        fail()
        return [first, second.title, *(call.model for call in ctx.ai.calls)]

    backburner = await running(two, provider)
    ticket = await backburner.submit(two, "first")
    told = await ticket.result()
    assert ["first 1", "second 2"] == told[:2]
    assert ["first", "second"] == provider.asked
    assert 4 == len(told)  # its calls are known, though this run made none
    job = await ticket.job()
    assert 3 == job.attempt
    assert 200 == (await backburner.engine.store.spent([job.seq]))[job.seq].tokens


async def test_without_remembering_each_attempt_asks(running):
    fail, provider = Failing(2), Counting()

    @capability("fresh", retry=AT_ONCE)
    async def fresh(ctx: Context, value: str) -> str:
        answer = await ctx.ask(value, remember=False)
        fail()
        return answer

    backburner = await running(fresh, provider)
    assert "a 3" == await (await backburner.submit(fresh, "a")).result()


async def test_a_named_step_is_computed_once_and_read_back_as_its_type(running):
    fail, computed = Failing(2), []

    async def charge(amount: int) -> Title:
        computed.append(amount)
        return Title(title=f"paid {amount}")

    def place() -> tuple[int, str]:
        computed.append("place")
        return 1, "a"

    seen = []

    @capability("charge", retry=AT_ONCE)
    async def pay(ctx: Context, value: int) -> str:
        paid = await ctx.step("charge", charge, value)
        where = await ctx.step("place", place)
        seen.append((paid, where))
        fail()
        return paid.title

    backburner = await running(pay)
    assert "paid 7" == await (await backburner.submit(pay, 7)).result()
    assert [7, "place"] == computed
    assert [(Title(title="paid 7"), (1, "a"))] * 3 == seen


class Correcting(Counting):
    """A provider whose answers do not match unless they are listed; `None` fails."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)

    async def chat(self, chat, _hear=None):
        is_correction = chat.messages[-1].text.startswith(CORRECTION)
        self.asked.append("correction" if is_correction else "question")
        answer = self.answers.pop(0)
        if answer is None:
            raise Fault(Trouble.UNAVAILABLE, "away", status=503)
        return Reply(answer, chat.model, Tokens(60, 40))


def parsing(**options):
    """A capability that asks for a title."""

    @capability("parse", **{"retry": AT_ONCE, **options})
    async def parse(ctx: Context, value: str) -> list[str]:
        title = (await ctx.ask(value, into=Title)).title
        return [title, *(str(call.output_tokens) for call in ctx.ai.calls)]

    return parse


async def test_an_answer_that_waits_for_its_correction_is_paid_for_once(running):
    provider = Correcting("no JSON", None, None, '{"title": "right"}')
    parse = parsing()
    backburner = await running(parse, provider)
    ticket = await backburner.submit(parse, "a")
    assert ["right", "40", "40"] == await ticket.result()
    assert ["question", *["correction"] * 3] == provider.asked
    job = await ticket.job()
    assert 200 == (await backburner.engine.store.spent([job.seq]))[job.seq].tokens


async def test_answers_that_do_not_match_are_paid_for_but_not_stored(running):
    provider = Correcting("no JSON", "no JSON either", '{"title": "right"}')
    parse = parsing(max_attempts=1)
    backburner = await running(parse, provider)
    ticket = await backburner.submit(parse, "a")
    with pytest.raises(JobFailed):
        await ticket.result()
    job = await ticket.job()
    assert [] == await backburner.engine.steps_of(job.seq)
    assert 200 == (await backburner.engine.store.spent([job.seq]))[job.seq].tokens
    await backburner.engine.retry(ticket.id)
    assert ["right", "40"] == await ticket.result()
    assert ["question", "correction", "question"] == provider.asked


async def test_a_corrected_answer_that_is_rejected_is_asked_for_from_the_start(running):
    provider = Correcting("no JSON", '{"title": "one"}', '{"title": "two"}')

    @capability("picky", retry=AT_ONCE)
    async def picky(ctx: Context, value: str) -> str:
        title = (await ctx.ask(value, into=Title)).title
        if title == "one":
            await ctx.forget()
            raise TransientError("not good enough")
        return title

    backburner = await running(picky, provider)
    assert "two" == await (await backburner.submit(picky, "a")).result()
    assert ["question", "correction", "question"] == provider.asked


async def test_the_same_question_twice_has_two_answers_in_any_order(running):
    fail, provider = Failing(1), Counting()

    @capability("gathered", retry=AT_ONCE)
    async def gathered(ctx: Context, value: str) -> list[str]:
        names = [value, "other", value]
        answers = await asyncio.gather(*(ctx.ask(name) for name in names))
        fail()
        return answers

    backburner = await running(gathered, provider)
    told = await (await backburner.submit(gathered, "a")).result()
    assert 3 == len(provider.asked)
    assert {"a 1", "other 2", "a 3"} == {*told}


async def test_a_retried_dead_letter_keeps_its_answers_unless_it_is_to_start_fresh(
    running,
):
    fail, provider = Failing(2), Counting()

    @capability("dead", max_attempts=1)
    async def dead(ctx: Context, value: str) -> str:
        answer = await ctx.ask(value)
        fail()
        return answer

    backburner = await running(dead, provider)
    ticket = await backburner.submit(dead, "a")
    with pytest.raises(JobFailed):
        await ticket.result()
    await backburner.engine.retry(ticket.id)
    with pytest.raises(JobFailed):
        await ticket.result()
    assert ["a"] == provider.asked
    await backburner.engine.retry(ticket.id, fresh=True)
    assert "a 2" == await ticket.result()


async def test_a_fresh_retry_of_a_job_that_succeeded_discards_nothing(running):
    @capability("done")
    async def done(ctx: Context, value: str) -> str:
        return await ctx.ask(value) + await ctx.ask("b")

    backburner = await running(done, Counting())
    ticket = await backburner.submit(done, "a")
    await ticket.result()
    job = await backburner.engine.find(ticket.id)
    before = await backburner.engine.steps_of(job.seq)
    with pytest.raises(IllegalTransition):
        await backburner.engine.retry(ticket.id, fresh=True)
    assert before == await backburner.engine.steps_of(job.seq)
    assert before


async def test_a_handler_that_rejects_an_answer_forgets_it(running):
    provider = Counting()

    @capability("picky", retry=AT_ONCE)
    async def picky(ctx: Context, value: str) -> str:
        answer = await ctx.ask(value)
        if not answer.endswith("3"):
            await ctx.forget()
            raise TransientError("not good enough")
        return answer

    backburner = await running(picky, provider)
    assert "a 3" == await (await backburner.submit(picky, "a")).result()


async def test_embeddings_and_streamed_text_are_steps_too(running):
    fail, provider = Failing(1), Counting()

    @capability("mixed", retry=AT_ONCE)
    async def mixed(ctx: Context, value: str) -> str:
        vectors = await ctx.embed([value])
        assert isinstance(vectors, Vectors)
        text = await ctx.ask(value, stream=True)
        fail()
        return text

    backburner = await running(mixed, provider)
    ticket = await backburner.submit(mixed, "a")
    assert "a 2" == await ticket.result()
    assert ["embed", "a"] == provider.asked
    assert "a 2" == (await backburner.engine.draft(ticket.id)).text


async def test_a_stored_answer_is_passed_to_the_function_that_takes_streamed_text(
    running,
):
    fail, provider, heard = Failing(1), Counting(), []

    @capability("passed", retry=AT_ONCE)
    async def passed(ctx: Context, value: str) -> str:
        async def hear(text: str) -> None:
            heard.append(text)

        answer = await ctx.ask(value, stream=hear)
        fail()
        return answer

    backburner = await running(passed, provider)
    ticket = await backburner.submit(passed, "a")
    assert "a 1" == await ticket.result()
    assert ["a"] == provider.asked
    assert ["a 1", "a 1"] == heard
    types = {
        e.type
        for e in await backburner.engine.store.history(ticket.id, after=0, limit=99)
    }
    assert STEP_CHANGED not in types


async def test_a_result_larger_than_a_row_is_stored_beside_it(running):
    fail, computed = Failing(1), []

    def large() -> str:
        computed.append(1)
        return "x" * 200_000

    @capability("large", retry=AT_ONCE)
    async def make(ctx: Context, _value: None) -> int:
        size = len(await ctx.step("large", large))
        fail()
        return size

    backburner = await running(make)
    ticket = await backburner.submit(make, None)
    assert 200_000 == await ticket.result()
    assert [1] == computed
    job = await ticket.job()
    [stored] = await backburner.engine.steps_of(job.seq)
    assert len(stored.result) < 200


@pytest.mark.parametrize(
    ("code", "handler"),
    [
        ("STEP_NOT_SERIALISABLE", lambda ctx: ctx.step("odd", object)),
        ("STEP_NAME", lambda ctx: ctx.step("", dict)),
        ("STEP_NAME", lambda ctx: ctx.step("x" * 201, dict)),
    ],
)
async def test_what_cannot_be_a_step_says_why(running, code, handler):
    @capability("odd", max_attempts=1)
    async def odd(ctx: Context, _value: None) -> None:
        await handler(ctx)

    backburner = await running(odd)
    with pytest.raises(JobFailed) as told:
        await (await backburner.submit(odd, None)).result()
    assert code == told.value.job.error.code


async def test_a_name_is_used_once_in_a_run(running):
    @capability("twice", max_attempts=1)
    async def twice(ctx: Context, _value: None) -> None:
        await ctx.step("same", dict)
        await ctx.step("same", dict)

    backburner = await running(twice)
    with pytest.raises(JobFailed) as told:
        await (await backburner.submit(twice, None)).result()
    assert "STEP_REPEATED" == told.value.job.error.code
    assert "same" in str(told.value)


async def test_a_step_within_a_step_is_found_by_its_place(running):
    fail, computed = Failing(1), []

    async def inner() -> str:
        computed.append("inner")
        return "i"

    @capability("nested", retry=AT_ONCE)
    async def nested(ctx: Context, _value: None) -> str:
        async def outer() -> str:
            computed.append("outer")
            found = await ctx.step("part", inner)
            fail()
            return found

        return await ctx.step("outer", outer) + await ctx.step("part", inner)

    backburner = await running(nested)
    assert "ii" == await (await backburner.submit(nested, None)).result()
    assert ["outer", "inner", "outer", "inner"] == computed


async def test_a_changed_request_is_reported_while_answers_are_unread(running):
    fail, questions = Failing(1), ["old", "new"]

    @capability("changed", retry=AT_ONCE)
    async def changed(ctx: Context, _value: None) -> str:
        answer = await ctx.ask(questions.pop(0))
        fail()
        return answer

    backburner = await running(changed)
    ticket = await backburner.submit(changed, None)
    assert "new 2" == await ticket.result()
    history = await backburner.engine.store.history(ticket.id, after=0, limit=100)
    [event] = [event for event in history if event.type == STEP_CHANGED]
    assert {"step": "ask", "unread": 1} == event.data


async def test_a_stored_result_of_another_type_is_refused_with_a_way_out(running):
    types, fail = [int, Title], Failing(1)

    @capability("retyped", retry=AT_ONCE)
    async def retyped(ctx: Context, _value: None) -> str:
        result = await ctx.step("one", lambda: 1, into=types.pop(0))
        fail()
        return str(result)

    backburner = await running(retyped)
    ticket = await backburner.submit(retyped, None)
    with pytest.raises(JobFailed) as told:
        await ticket.result()
    assert "STEP_MISMATCH" == told.value.job.error.code
    assert "fresh" in str(told.value)


async def test_a_run_that_lost_its_job_stores_nothing(running):
    begun, cancelled, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    ended = asyncio.get_running_loop().create_future()

    @capability("slow", max_attempts=1)
    async def slow(ctx: Context, _value: None) -> None:
        begun.set()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            cancelled.set()
            await go_on.wait()
        try:
            await ctx.step("late", dict)
        except BaseException as error:
            ended.set_result(type(error).__name__)
            raise

    backburner = await running(slow)
    ticket = await backburner.submit(slow, None)
    await asyncio.wait_for(begun.wait(), 60)
    await ticket.cancel()
    await asyncio.wait_for(cancelled.wait(), 60)
    go_on.set()
    job = await ticket.job()
    assert "ClaimLost" == await asyncio.wait_for(ended, 60)
    assert not await backburner.engine.steps_of(job.seq)


async def test_an_answer_right_before_success_is_not_written(running):
    @capability("single")
    async def single(ctx: Context, value: str) -> str:
        return await ctx.ask(value)

    backburner = await running(single)
    ticket = await backburner.submit(single, "a")
    await ticket.result()
    job = await ticket.job()
    assert not await backburner.engine.steps_of(job.seq)
    assert 100 == (await backburner.engine.store.spent([job.seq]))[job.seq].tokens


async def test_a_permanent_failure_keeps_what_was_paid(running):
    @capability("refused", max_attempts=1)
    async def refused(ctx: Context, value: str) -> str:
        await ctx.ask(value)
        raise PermanentError("no")

    backburner = await running(refused)
    ticket = await backburner.submit(refused, "a")
    with pytest.raises(JobFailed):
        await ticket.result()
    job = await ticket.job()
    assert ["ask"] == [step.kind for step in await backburner.engine.steps_of(job.seq)]


async def in_doubt(backburner, ticket, name="charge", kind="step"):
    """Leave a step of a job as a run leaves it that dies before its result."""
    job = await ticket.job()
    key = f"step/{name}"
    begun = StepResult(job.seq, "", key, kind, name, 1, 0, "", 5, True)

    def write(tx):
        row = {k: v for k, v in begun._asdict().items() if k != "token"}
        tx.connection.execute(step_results.insert().values(**row))
        change = jobs.update().where(jobs.c.seq == job.seq)
        tx.connection.execute(change.values(events=jobs.c.events + 5))

    await backburner.engine.store.transact(write)


@pytest.fixture
async def doubtful(home_url):
    """Run a job one of whose steps was begun by a run that was lost."""
    opened = []

    async def run(one):
        settings = Settings(store=home_url, **SETTINGS)
        backburner = Backburner(settings, capabilities=[one], ai=Counting())
        await backburner.__aenter__()
        opened.append(backburner)
        ticket = await backburner.submit(one, None)
        await in_doubt(backburner, ticket)
        await backburner.start_worker()
        return backburner, ticket

    yield run
    for backburner in opened:
        await backburner.__aexit__(None, None, None)


@pytest.mark.parametrize(
    ("options", "expected", "computed"),
    [
        ({"reconcile": lambda amount: f"found {amount}"}, "found 7", []),
        ({"reconcile": lambda _amount: NOT_DONE}, "charged 7", [7]),
        ({"once": True, "in_doubt": "retry"}, "charged 7", [7]),
    ],
)
async def test_a_step_in_doubt_is_reconciled_or_run_again(
    doubtful, options, expected, computed
):
    runs = []

    @capability("pay", max_attempts=1)
    async def pay(ctx: Context, _value: None) -> str:
        def charge(amount: int) -> str:
            runs.append(amount)
            return f"charged {amount}"

        return await ctx.step("charge", charge, 7, **options)

    _, ticket = await doubtful(pay)
    assert (expected, computed) == (await ticket.result(), runs)


@pytest.mark.parametrize(
    ("answer", "expected", "computed"),
    [
        ({"done": True, "result": "charged by hand"}, "charged by hand", []),
        ({"done": False}, "charged 7", [7]),
    ],
)
async def test_a_person_decides_what_became_of_a_step_in_doubt(
    doubtful, answer, expected, computed
):
    runs = []

    @capability("pay", max_attempts=1)
    async def pay(ctx: Context, _value: None) -> str:
        def charge(amount: int) -> str:
            runs.append(amount)
            return f"charged {amount}"

        return await ctx.step("charge", charge, 7, once=True, in_doubt="ask_person")

    backburner, ticket = await doubtful(pay)
    while not (questions := await backburner.questions()):
        pass
    [asked] = questions
    assert "'charge'" in asked.question
    assert await backburner.answer(ticket.id, asked.name, answer)
    assert (expected, computed) == (await ticket.result(), runs)


async def test_a_step_in_doubt_fails_the_job_if_nobody_can_tell(doubtful):
    runs = []

    @capability("pay", max_attempts=3, retry=AT_ONCE)
    async def pay(ctx: Context, _value: None) -> None:
        await ctx.step("charge", lambda: runs.append(1), once=True)

    backburner, ticket = await doubtful(pay)
    with pytest.raises(JobFailed) as told:
        await ticket.result()
    assert ("STEP_IN_DOUBT", []) == (told.value.job.error.code, runs)
    assert "charge" in str(told.value)
    [step] = await backburner.engine.steps_of((await ticket.job()).seq)
    assert (True, 0) == (step.is_open, step.size)
    await backburner.engine.retry(ticket.id, fresh=True)
    await ticket.result()
    assert [1] == runs


async def test_a_step_that_says_it_did_not_happen_is_not_in_doubt(running):
    fail, runs = Failing(2), []

    @capability("refused", retry=AT_ONCE)
    async def refused(ctx: Context, _value: None) -> int:
        def charge() -> int:
            fail()
            runs.append(1)
            return 1

        return await ctx.step("charge", charge, once=True)

    backburner = await running(refused)
    assert 1 == await (await backburner.submit(refused, None)).result()
    assert [1] == runs


async def test_control_a_step_that_breaks_otherwise_is_in_doubt(running):
    @capability("broken", retry=AT_ONCE)
    async def broken(ctx: Context, _value: None) -> None:
        await ctx.step("charge", lambda: 1 / 0, once=True)

    backburner = await running(broken)
    with pytest.raises(JobFailed) as told:
        await (await backburner.submit(broken, None)).result()
    assert "STEP_IN_DOUBT" == told.value.job.error.code


class Slow(Counting):
    """A provider whose first call is under way until it is let go."""

    def __init__(self):
        super().__init__()
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def chat(self, chat, hear=None):
        self.begun.set()
        await self.go_on.wait()
        return await super().chat(chat, hear)


async def test_a_model_call_that_takes_a_while_is_known_before_its_answer(running):
    provider = Slow()

    @capability("slow", max_attempts=1)
    async def slow(ctx: Context, value: str) -> str:
        return await ctx.ask(value)

    backburner = await running(slow, provider)
    ticket = await backburner.submit(slow, "a" * 400)
    job = await ticket.job()
    async with asyncio.timeout(60):
        await provider.begun.wait()
        while not (found := await backburner.engine.steps_of(job.seq)):
            await pause()
    [step] = found
    assert (True, 0, "ask") == (step.is_open, step.size, step.kind)
    assert 100 < step.expected < 130
    provider.go_on.set()
    assert await ticket.result()


async def passed(milliseconds):
    """Wait until this much time has passed by the clock that is measured by."""
    clock = SystemClock()
    until = clock.now() + milliseconds
    while clock.now() < until:
        await pause()


class Taking(Counting):
    """A provider that takes a while."""

    async def chat(self, chat, hear=None):
        await passed(20)
        return await super().chat(chat, hear)


async def test_how_long_steps_and_model_calls_took_is_stored(running):
    @capability("timed", max_attempts=1)
    async def timed(ctx: Context, value: str) -> None:
        await ctx.step("look up", lambda: passed(30))
        await ctx.ask(value)
        ctx.used("another", input_tokens=1, output_tokens=1)
        raise PermanentError("no")

    backburner = await running(timed, Taking())
    ticket = await backburner.submit(timed, "a")
    await ticket.wait()
    job = await ticket.job()
    looked, asked = await backburner.engine.steps_of(job.seq)
    calls = await backburner.engine.store.calls_of(job.seq, limit=9)

    assert 30 <= looked.duration_ms
    assert 20 <= asked.duration_ms
    assert 20 <= calls[0].used.duration_ms
    assert None is calls[1].used.duration_ms, "nobody knows how long it took"
    assert {asked.epoch} == {call.epoch for call in calls}
