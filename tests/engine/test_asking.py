"""Handlers that ask models, in a real instance; the models are the mock's."""

import asyncio
import io
import sys

import pytest
import structlog
from pydantic import BaseModel

from backburner import (
    AnswerTruncated,
    App,
    Backburner,
    Budget,
    Context,
    Message,
    ModelUse,
    PermanentError,
    Throttled,
    TransientError,
    capability,
    open_asker,
)
from backburner.ai.mock import Mock
from backburner.clock import SystemClock
from backburner.domain.ai import Trouble
from backburner.domain.errors import ConfigurationError
from backburner.domain.events.event import THROTTLED
from backburner.domain.jobs.job import JobState
from backburner.engine.models.asking import Asker, Providers
from backburner.engine.models.lanes import Call
from backburner.engine.observability import telemetry
from backburner.ports.ai import Fault, Reply, Tokens
from backburner.settings import Settings
from backburner.testing.doubles import FakeContext

BRIEFLY = 0.1
PRICES = '{"models": {"m": {"input": 1, "output": 2}}}'


class Task(BaseModel):
    title: str
    priority: str
    subtasks: list[str]


@capability("parse", max_attempts=2)
async def parse(ctx: Context, text: str) -> Task:
    return await ctx.ask(text, into=Task, seconds=5)


@capability("say", max_attempts=1)
async def say(ctx: Context, text: str) -> str:
    return await ctx.ask(text, stream=True)


class Named(Mock):
    """A mock by another name, which counts who asks it."""

    def __init__(self, name, *script):
        super().__init__(SystemClock(), script=script)
        self.name = name
        self.asked = []

    async def chat(self, chat, hear=None):
        self.asked.append(chat)
        return await super().chat(chat, hear)


class Own(Named):
    """One that answers as a function says, which is given who hears."""

    def __init__(self, name, do):
        super().__init__(name)
        self._do = do

    async def chat(self, chat, hear=None):
        self.asked.append(chat)
        return await self._do(hear)


def replying(*reply):
    """An own one that always says the same."""

    async def do(_hear):
        return Reply(*reply)

    return Own("own", do)


def asker(*providers, seconds=5.0, **given):
    return Asker(Providers(providers, SystemClock(), seconds), **given)


async def spent(backburner, job):
    return (await backburner.engine.store.spent([job.seq]))[job.seq]


async def test_a_sentence_becomes_a_value_and_its_use_is_booked(working, ended):
    backburner = await working(parse)
    ticket = await backburner.submit(parse, "fix the roof asap: buy nails, climb up")
    job = await ended(ticket)

    assert JobState.SUCCEEDED is job.state
    expected = Task(
        title="Fix the roof", priority="urgent", subtasks=["Buy nails", "Climb up"]
    )
    assert expected == await ticket.result()
    used = await spent(backburner, job)
    assert (1, ("mock",)) == (used.calls, used.models)
    assert used.input_tokens > 0 < used.output_tokens


async def test_a_bad_answer_is_corrected_once_and_both_calls_are_booked(working, ended):
    backburner = await working(parse)
    job = await ended(await backburner.submit(parse, "run [[mock: nonsense once]]"))

    assert (JobState.SUCCEEDED, 1) == (job.state, job.attempt)
    assert 2 == (await spent(backburner, job)).calls


async def test_nonsense_twice_ends_the_job_and_is_paid_for(working, ended):
    backburner = await working(parse)
    job = await ended(await backburner.submit(parse, "run [[mock: nonsense]]"))

    assert (JobState.FAILED, "AI_INVALID_JSON", False) == (
        job.state,
        job.error.code,
        job.error.retryable,
    )
    assert 1 == job.attempt
    assert 2 == (await spent(backburner, job)).calls, "there is one correction, no more"


async def test_the_correction_shows_the_answer_and_what_is_wrong_with_it():
    class Number(BaseModel):
        number: int

    provider = replying('{"number": "many"}', "m", Tokens(1, 1))
    with pytest.raises(PermanentError, match="number: Input should be a valid int"):
        await asker(provider).ask("how many?", into=Number)
    first, second = provider.asked

    assert first.messages == second.messages[: len(first.messages)]
    shown, correction = second.messages[-2:]
    assert ("assistant", '{"number": "many"}') == shown
    assert "number: Input should be a valid integer" in correction.text


async def test_a_refusal_with_a_time_costs_no_attempt(working, ended, told):
    backburner = await working(parse)
    ticket = await backburner.submit(parse, "run [[mock: 429 retry-after=0.2 times=3]]")
    put_back = await told(ticket, THROTTLED)
    job = await ended(ticket)

    assert "AI_RATE_LIMITED" == put_back.data["error"]["code"]
    assert (JobState.SUCCEEDED, 1) == (job.state, job.attempt)


async def test_a_refusal_without_a_time_counts_as_an_attempt(working, ended):
    backburner = await working(parse)
    ticket = await backburner.submit(parse, "run [[mock: 429]]", max_attempts=1)
    job = await ended(ticket)

    assert (JobState.FAILED, "AI_RATE_LIMITED") == (job.state, job.error.code)


@pytest.mark.parametrize(
    ("mark", "kind", "code"),
    [
        ("500", TransientError, "AI_UNAVAILABLE"),
        ("503", TransientError, "AI_UNAVAILABLE"),
        ("drop", TransientError, "AI_UNAVAILABLE"),
        ("hang", TransientError, "AI_TIMEOUT"),
        ("drip", TransientError, "AI_TIMEOUT"),
        ("broken", TransientError, "AI_BAD_ANSWER"),
        ("429", TransientError, "AI_RATE_LIMITED"),
        ("429 retry-after=3", Throttled, "AI_RATE_LIMITED"),
        ("refuse", PermanentError, "AI_REFUSED"),
        ("400", PermanentError, "AI_REJECTED"),
        ("404", PermanentError, "AI_REJECTED"),
        ("401", PermanentError, "AI_UNAUTHORIZED"),
        ("403", PermanentError, "AI_UNAUTHORIZED"),
        ("too long", PermanentError, "AI_CONTEXT_TOO_LONG"),
    ],
)
async def test_each_trouble_is_an_error_of_the_engine(mark, kind, code):
    words = "word " * 20
    with pytest.raises(kind) as raised:
        await asker(Named("one"), seconds=BRIEFLY).ask(f"{words}[[mock: {mark}]]")

    assert code == raised.value.problem_code
    assert type(raised.value) is kind
    assert "word" not in str(raised.value), "an error does not repeat the prompt"


@pytest.mark.parametrize("told", [0.2, 3.0])
async def test_without_a_lane_what_the_provider_told_holds(told):
    for asking in (asker(Named("one")), FakeContext().ai):
        with pytest.raises(Throttled) as raised:
            await asking.ask(f"x [[mock: 429 retry-after={told}]]")

        assert told == raised.value.retry_after


async def test_the_time_is_for_both_calls_together():
    # The second call hangs: were its time its own, this would not end in time.
    provider = Named("one", "nonsense", "hang")
    with pytest.raises(TransientError, match="exceeded its time limit"):
        await asker(provider, seconds=BRIEFLY).ask("x", into=Task)

    assert 2 == len(provider.asked)


@pytest.mark.parametrize(
    "trouble", ["500", "429 retry-after=9", "drop", "hang", "broken"]
)
async def test_the_next_provider_answers_when_one_cannot(trouble):
    first, second = Named("one", trouble), Named("two")
    asking = asker(first, second, seconds=BRIEFLY)

    assert "Mock answer to: hello" == await asking.ask("hello", model="special")
    assert ["two"] == [call.provider for call in asking.calls], "who answered is told"
    assert ["special"] == [chat.model for chat in first.asked]
    assert ["mock"] == [chat.model for chat in second.asked], "it has its own model"


@pytest.mark.parametrize("trouble", ["refuse", "400", "401"])
async def test_a_question_that_is_not_taken_is_not_passed_on(trouble):
    first, second = Named("one", trouble), Named("two")
    with pytest.raises(PermanentError):
        await asker(first, second).ask("hello")

    assert [] == second.asked


@pytest.mark.parametrize(
    ("one", "two", "code", "wait"),
    [
        ("500", "drop", "AI_UNAVAILABLE", None),
        ("429 retry-after=9", "429 retry-after=4", "AI_RATE_LIMITED", 4.0),
        ("500", "429 retry-after=4", "AI_RATE_LIMITED", 4.0),
        ("broken", "429", "AI_BAD_ANSWER", None),
    ],
)
async def test_if_nobody_can_the_shortest_wait_is_told(one, two, code, wait):
    with pytest.raises(TransientError) as raised:
        await asker(Named("one", one), Named("two", two)).ask("hello")

    assert code == raised.value.problem_code
    assert wait == getattr(raised.value, "retry_after", None)


async def test_text_that_was_read_is_not_followed_by_another_providers():
    heard = []

    async def emit(text):
        heard.append(text)

    async def cut(hear):
        await hear("Once upon ")
        raise Fault(Trouble.UNAVAILABLE, "cut")

    async def silent(_hear):
        raise Fault(Trouble.UNAVAILABLE, "down")

    second = Named("two")
    with pytest.raises(TransientError):
        await asker(Own("one", cut), second, emit=emit).ask("hello", stream=True)

    assert (["Once upon "], []) == (heard, second.asked)
    await asker(Own("one", silent), second, emit=emit).ask("hello", stream=True)
    assert 1 == len(second.asked), "control: nothing was read of the first"


async def test_the_first_text_tells_the_lane_that_it_is_served():
    told = []

    class Noted(Call):
        def hear(self, status, headers=None, body=None):
            told.append((status, len(heard)))
            super().hear(status, headers, body)

    async def emit(text):
        heard.append(text)

    def lane(provider, model, *, credential, **_how):
        return Noted(None, f"{provider}/{model}#{credential}")

    heard, paced = [], Named("one")
    paced.is_paced = True
    await asker(paced, lane=lane, emit=emit).ask("one two", stream=True)

    assert [(200, 0), (200, len(heard))] == told, "others need not wait for the rest"


async def test_text_can_be_passed_to_a_function_in_place_of_the_stream():
    emitted, passed = [], []

    async def emit(text):
        emitted.append(text)

    async def change(text):
        passed.append(text.upper())

    asking = asker(Named("one"), emit=emit)
    answer = await asking.ask("one two", stream=change)

    assert ([], answer.upper()) == (emitted, "".join(passed))
    with pytest.raises(ValueError, match="cannot be streamed"):
        await asking.ask("one two", into=int, stream=change)
    await asking.ask("one two", stream=True)
    assert answer == "".join(emitted), "control: by default it is emitted"


async def test_text_is_streamed_as_it_comes(working, ended):
    backburner = await working(say)
    ticket = await backburner.submit(say, "one two [[mock: drip]]")
    pieces = [piece.text async for piece in ticket.pieces()]
    job = await ended(ticket)

    assert JobState.SUCCEEDED is job.state
    assert "Mock answer to: one two" == "".join(pieces)
    assert len(pieces) > 1, "it was told in pieces"


async def test_a_shape_is_not_streamed():
    with pytest.raises(ValueError, match="cannot be streamed"):
        await asker(Named("one")).ask("x", into=Task, stream=True)


async def test_odd_counts_of_a_provider_cost_nobody_the_answer():
    odd = replying("fine", "m" * 300, Tokens(5, -3, 50))
    context = FakeContext()
    asking = Asker(Providers([odd], SystemClock()), book=context.spending.add)

    assert "fine" == await asking.ask("x")
    [used] = context.usage
    assert (5, 0, 5) == (used.input_tokens, used.output_tokens, used.cached_tokens)


async def test_a_call_that_did_not_say_what_it_used_is_booked_by_estimate(
    home_url, ended
):
    @capability("silent", tokens=500)
    async def silent(ctx: Context, text: str) -> str:
        return await ctx.ask(text)

    settings = Settings(store=home_url, grace_seconds=0, prices=PRICES)
    provider = replying("a fine answer of some words", "m")
    budgets = [Budget("tenant", tokens=1_000)]
    async with Backburner(
        settings, capabilities=[silent], ai=provider, budgets=budgets
    ) as backburner:
        await backburner.start_worker()
        job = await ended(await backburner.submit(silent, "a question of some words"))
        used = await spent(backburner, job)
        [account] = await backburner.budgets.accounts()

    assert (1, 1) == (used.calls, used.unpriced), "what is estimated has no price"
    assert 3 <= used.input_tokens <= 12
    assert 3 <= used.output_tokens <= 12
    assert used.tokens == account.balance.settled


async def test_what_the_system_says_is_one_message():
    provider = Named("one")
    prompt = [Message("system", "Be kind."), Message("user", "hello")]
    await asker(provider).ask(prompt, system="Be short.", into=Task)
    [chat] = provider.asked

    assert ["system", "user"] == [message.role for message in chat.messages]
    assert chat.messages[0].text.startswith("Be kind.\n\nBe short.\n\nAnswer with one")


async def test_vectors_come_from_the_first_provider_or_not_at_all():
    first, second = Named("one"), Named("two")
    vectors = await asker(first, second).embed(["a", "b"])

    assert ("mock", 2) == (vectors.model, len(vectors.vectors))
    with pytest.raises(TransientError):
        await asker(Named("one", "500"), second).embed(["a"])


async def test_recordings_and_pictures_go_the_same_way():
    context = FakeContext()

    assert "was not read" in await context.transcribe(b"123", "audio/ogg")
    assert "was not read" in await context.describe(b"123", "image/png")
    assert 1 == len((await context.embed(["a"])).vectors)
    assert 3 == len(context.usage) == len(context.ai.calls)


@pytest.fixture
def log():
    """What is logged, whatever was set up by tests before."""
    stream = io.StringIO()
    telemetry.configure(level="info", pretty=False, stream=stream)
    yield stream
    structlog.reset_defaults()


async def test_no_word_of_a_prompt_or_an_answer_reaches_the_log(log):
    chain = Named("one", "500"), Named("two")
    with pytest.raises(PermanentError):
        await asker(*chain).ask("canary-7 [[mock: nonsense]]", into=Task)
    told = log.getvalue()

    assert "provider skipped" in told, "control: something is told"
    assert "asking for a correction" in told
    assert "canary-7" not in told
    assert "weather" not in told


async def test_the_same_asker_serves_without_a_job(submitting):
    backburner = await submitting()
    asking = backburner.asker()
    task = await asking.ask("fix the roof asap", into=Task)

    assert ("Fix the roof", "urgent") == (task.title, task.priority)
    [call] = asking.calls
    assert ("mock", "mock") == call[:2]
    assert call.input_tokens > 0 < call.output_tokens


async def test_a_program_without_a_store_asks_and_corrects_once():
    async with open_asker(Settings(ai="mock")) as asking:
        task = await asking.ask("fix the roof asap [[mock: nonsense once]]", into=Task)

        assert ("Fix the roof", "urgent") == (task.title, task.priority)
        assert 2 == len(asking.calls), "the question and one correction"
        with pytest.raises(PermanentError):
            await asking.ask("fix the roof [[mock: nonsense]]", into=Task)
        assert 4 == len(asking.calls), "no second correction"


async def test_an_instance_may_be_given_its_own_providers(path, ended):
    own = Named("own")
    async with Backburner(
        Settings(store=f"sqlite:///{path}"), capabilities=[parse], ai=own
    ) as backburner:
        await backburner.start_worker()
        job = await ended(await backburner.submit(parse, "run"))

    assert (JobState.SUCCEEDED, 1) == (job.state, len(own.asked))


@capability("listen", max_attempts=2)
async def listen(ctx: Context, value: str) -> str:
    return await ctx.transcribe(value.encode(), "audio/ogg")


@pytest.mark.parametrize("kind", ["capabilities", "own"])
async def test_without_a_provider_no_answer_is_invented(path, ended, kind):
    deaf = ModelUse("transcription", is_required=False, code="NO_EARS")
    app = App("deaf", **{kind: [listen]}, models=[deaf])
    async with Backburner(
        Settings(store=f"sqlite:///{path}"), capabilities=[parse], apps=[app]
    ) as backburner:
        await backburner.start_worker()
        jobs = [
            await ended(await backburner.submit(found, "run"))
            for found in (parse, listen)
        ]

    assert {JobState.FAILED} == {job.state for job in jobs}
    assert ["AI_NOT_CONFIGURED", "NO_EARS"] == [job.error.code for job in jobs]
    assert "BACKBURNER_AI" in jobs[0].error.message
    assert [1, 1] == [job.attempt for job in jobs], "it is not tried again"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"ai": ("openai",)}, "^OPENAI_API_KEY is not set"),
        ({"ai": ("mock", "openai")}, "^OPENAI_API_KEY is not set"),
        ({"ai": ("opena",)}, "^BACKBURNER_AI: no provider is named 'opena'"),
    ],
)
async def test_a_provider_without_its_key_does_not_start(backburner, settings, told):
    with pytest.raises(ConfigurationError, match=told):
        async with backburner(**settings):
            pass


async def test_a_provider_that_is_not_installed_is_named(backburner, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "backburner.ai.openai", raising=False)

    with pytest.raises(ConfigurationError, match=r"^BACKBURNER_AI: .*openai"):
        async with backburner(ai=("openai",), openai_api_key="k"):
            pass


async def test_the_limits_that_are_set_are_those_of_its_lanes(working):
    backburner = await working(
        parse,
        ai=("openai",),
        openai_api_key="sk-secret-and-long",
        ai_at_once=5,
        ai_spacing_ms=200,
    )
    views = await backburner.engine.store.lanes()
    lanes = {view.state.name: view.state for view in views}
    [name] = [name for name in lanes if name.startswith("openai/gpt-5-mini#")]

    assert (5, 200) == (lanes[name].at_once, lanes[name].spacing)
    assert "secret" not in "".join(lanes), "a lane's name is not the key"


async def test_a_cancelled_job_lets_go_of_its_question(path):
    begun, gone = asyncio.Event(), asyncio.Event()

    async def hang(_hear):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async with Backburner(
        Settings(store=f"sqlite:///{path}"), capabilities=[parse], ai=Own("own", hang)
    ) as backburner:
        await backburner.start_worker()
        ticket = await backburner.submit(parse, "run")
        async with asyncio.timeout(60):
            await begun.wait()
            await backburner.cancel(ticket.id)
            await gone.wait()


async def test_the_next_provider_answers_when_one_has_no_credit():
    one, two = Named("one", "no-quota"), Named("two")

    assert "Mock answer to: hi" == await asker(one, two).ask("hi")


async def test_no_credit_anywhere_is_final_and_a_fault_of_one_is_not():
    with pytest.raises(PermanentError) as final:
        await asker(Named("one", "no-quota"), Named("two", "no-quota")).ask("hi")
    with pytest.raises(TransientError) as passing:
        await asker(Named("one", "no-quota"), Named("two", "500")).ask("hi")

    assert Trouble.NO_QUOTA == final.value.problem_code
    assert Trouble.UNAVAILABLE == passing.value.problem_code


async def test_the_mock_can_be_cut_off():
    with pytest.raises(AnswerTruncated):
        await asker(Named("one")).ask("hi [[mock: truncated]]")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("I would rather not {", "AI_INVALID_JSON"),
        ('{"number": "many"}', "AI_SCHEMA_VIOLATION"),
        ("[1, 2", "AI_INVALID_JSON"),
    ],
)
async def test_no_json_and_json_of_another_shape_have_codes_of_their_own(answer, code):
    class Number(BaseModel):
        number: int

    seen = []
    saying = replying(answer, "m", Tokens(1, 1))

    with pytest.raises(PermanentError) as raised:
        await asker(saying).ask("how many?", into=Number, on_correction=seen.append)

    assert code == raised.value.problem_code
    (correction,) = seen
    assert (code, len(answer)) == (correction.code, correction.length)
    assert saying.name == correction.provider
    assert answer not in correction.reason


async def test_the_hook_sees_only_corrections_and_cannot_break_the_answer():
    class Number(BaseModel):
        number: int

    def breaks(_correction):
        raise RuntimeError("my own fault")

    seen, answers = [], iter(["no", '{"number": 2}'])

    async def correct(_hear):
        return Reply(next(answers), "m", Tokens(1, 1))

    good, late = replying('{"number": 1}', "m", Tokens(1, 1)), Own("late", correct)

    first = await asker(good).ask("how many?", into=Number, on_correction=seen.append)
    second = await asker(late).ask("how many?", into=Number, on_correction=breaks)

    assert ([], 1, 2) == (seen, first.number, second.number)


async def test_who_is_asked_first_is_known_before_asking():
    first = asker(Named("first"), Named("second")).first()

    assert ("first", "mock") == first
    assert None is asker().first("transcription")
