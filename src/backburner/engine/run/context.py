"""The context of a running handler."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial
from hashlib import sha256
from inspect import isawaitable
from types import FunctionType
from typing import (
    Any,
    Concatenate,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    get_type_hints,
    overload,
)

from pydantic_core import to_json

from backburner.domain.costs.usage import NOTHING, Spent, Usage, usage
from backburner.domain.errors import (
    ClaimLost,
    PermanentError,
    StoreUnavailable,
    TransientError,
    readable,
)
from backburner.domain.events.text import Draft
from backburner.domain.groups.flow import Edge
from backburner.domain.jobs.job import Claim, Instant, Job, Need, Owner, Visibility
from backburner.domain.jobs.step import InDoubt
from backburner.domain.lanes.lane import lane_name
from backburner.engine.blobs.app_blobs import AppBlobs
from backburner.engine.blobs.payloads import JobBlobs, Payloads
from backburner.engine.flow import Flow, Planned, Typed
from backburner.engine.models.asking import Asker, Providers, Vectors
from backburner.engine.models.lanes import Call, LaneGate
from backburner.engine.models.shapes import shape_of
from backburner.engine.models.spending import Spending, billed
from backburner.engine.models.usage import FIRST_RUN, UsageSink
from backburner.engine.options import SubmitGroupOptions, SubmitOptions
from backburner.engine.run.children import Children
from backburner.engine.run.drafts import Answered, StepDraft
from backburner.engine.run.needs import StepInput, given
from backburner.engine.run.outbound import Http
from backburner.engine.run.questions import NO_DEFAULT, Questions, Resolution
from backburner.engine.run.steps import (
    NOT_DONE,
    Once,
    StepJournal,
    StepStorage,
    request_of,
)
from backburner.engine.run.streaming import MOST_UNTOLD, OutputSink, OutputStream
from backburner.engine.run.waiting import Waiting, WaitStorage
from backburner.engine.ticket import Ticket
from backburner.engine.transaction import Transaction, View
from backburner.engine.webhooks.callback_sender import CallbackSender
from backburner.ports.ai import Message
from backburner.ports.app_settings import AppSettings
from backburner.ports.log import log

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
In = TypeVar("In")
Out = TypeVar("Out")

LARGEST_WHOLE = 2**53
NOT_REQUESTED = frozenset({"seconds", "on_correction", "stream"})
"""Options of a model call that do not change what is asked."""


@dataclass(frozen=True, slots=True)
class JobInfo:
    """The job that a handler runs for."""

    id: str
    capability: str
    queue: str
    owner: Owner
    attempt: int
    max_attempts: int
    generation: int
    created_at: Instant
    request_id: str | None
    step: str | None = None
    """Its name within its flow, if it is a step of one."""
    traceparent: str | None = None
    """The trace that its request was part of."""


class Submit(Protocol):
    """Submits a job on behalf of the running one."""

    def __call__(
        self, capability: Any, value: Any, **options: Unpack[SubmitOptions]
    ) -> Awaitable[Any]:
        """Return the new job's ticket."""
        ...


class Running(NamedTuple):
    """A job in a worker's hands."""

    job_id: str
    duration_ms: int
    """How long this run of it takes by now."""


class Storage(StepStorage, WaitStorage, Protocol):
    """The database, as handlers may use it."""

    async def find(self, job_id: str, owner: Visibility) -> Job:
        """Return an owner's job."""
        ...

    async def running(self, queue: str) -> Sequence[Running]:
        """Return jobs of a queue that run now, whoever's they are."""
        ...

    async def read(self, body: Callable[[View], T]) -> T:
        """Run a body over what is committed now; it cannot write."""
        ...

    async def transact(
        self, body: Callable[[Transaction], T], *, claim: Claim | None = None
    ) -> T:
        """Run a body in one transaction; `ClaimLost` unless the claim still holds."""
        ...

    async def draft(self, job_id: str, owner: Owner) -> Draft:
        """Return the state of an owner's job and the text that it has streamed."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """What handlers may use; the same for every attempt of a worker."""

    output_sink: OutputSink
    submit: Submit
    payloads: Payloads | None = None
    usage_sink: UsageSink | None = None
    lanes: LaneGate | None = None
    providers: Providers | None = None
    callback_sender: CallbackSender | None = None
    app_settings: AppSettings | None = None
    http: Callable[[], Http] | None = None
    storage: Storage | None = None
    lose: Callable[[Claim], None] | None = None
    """Whom to tell that a job is no longer this worker's."""


def inherited(claim: Claim) -> SubmitGroupOptions:
    """Return what a job made by another one takes over: its owner and request."""
    return {
        "owner": Owner(claim.tenant, claim.user),
        "request_id": claim.request_id,
        "traceparent": claim.traceparent,
    }


class Context:
    """What one attempt can use. Nothing here outlives the attempt."""

    __slots__ = (
        "_asker",
        "_blobs",
        "_bodies",
        "_children",
        "_claim",
        "_flow",
        "_following",
        "_given",
        "_needs",
        "_questions",
        "_services",
        "_steps",
        "_waiting",
        "is_over",
        "output_stream",
        "spent",
    )

    def __init__(
        self, claim: Claim, services: Services, needs: Sequence[Need] = ()
    ) -> None:
        self._claim = claim
        self._services = services
        self._asker: Asker | None = None
        self._steps: StepJournal | None = None
        self._waiting: Waiting | None = None
        self._children: Children | None = None
        self._questions: Questions | None = None
        self.output_stream: OutputStream | None = None
        """What was said so far, if anything was."""
        self.is_over = False
        """Whether the handler has ended."""
        self._blobs: JobBlobs | None = None
        self._bodies: list[Callable[[Transaction], None]] | None = None
        self._flow: Flow | None = None
        self._following: asyncio.Future[None] | None = None
        self._needs = needs
        self._given: Mapping[str, StepInput] | None = None
        self.spent: Spending | None = None
        """The same, if there may have been any."""

    @property
    def spending(self) -> Spending:
        """The model calls of this attempt."""
        if self.spent is None:
            lanes, usage_sink = self._services.lanes, self._services.usage_sink
            patience = 0.0 if lanes is None else lanes.paid_patience
            self.spent = Spending(
                self._claim, usage_sink, patience, is_over=self.is_over
            )
            self.spent.stores = self._services.storage is not None
        return self.spent

    @property
    def needs(self) -> Mapping[str, StepInput]:
        """What the steps before this one came to, by name."""
        if self._given is None:
            self._given = given(self._needs)
        return self._given

    @property
    def job(self) -> JobInfo:
        """The job that this is an attempt of."""
        claim = self._claim
        return JobInfo(
            id=claim.id,
            capability=claim.capability,
            queue=claim.queue,
            owner=Owner(claim.tenant, claim.user),
            attempt=claim.attempt,
            max_attempts=claim.max_attempts,
            generation=claim.generation,
            created_at=claim.created_at,
            request_id=claim.request_id,
            step=claim.step,
            traceparent=claim.traceparent,
        )

    def settings_of(self, model: type[S]) -> S:
        """Return an application's settings: `ctx.settings_of(SongsSettings).limit`."""
        return (self._services.app_settings or AppSettings()).of(model)

    async def progress(
        self, done: float, total: float = 1.0, message: str | None = None
    ) -> None:
        """
        Say how far the work is; readers see it live.

        Calls in quick succession are coalesced: the latest is what is told.
        """
        told: dict[str, Any] = {"done": _number(done), "total": _number(total)}
        if message is not None:
            told["message"] = readable(message)
        self._speak().report(told)

    async def emit(self, text: str) -> None:
        """
        Stream text; readers see it live, and late ones all of it.

        Calls in quick succession are told together. If another attempt follows, what
        it emits is compared with what readers have: they get what is new, and begin
        anew where it differs. If the result is a text, the text that was emitted is
        made equal to it.
        """
        if self.is_over:
            raise RuntimeError(
                "the handler has ended: its text can no longer be stored"
            )
        output_stream = self._speak()
        if self._following is None and self._is_repeat:
            self._following = asyncio.ensure_future(self._follow(output_stream))
        if self._following is not None:
            await asyncio.shield(self._following)
        output_stream.say(text)
        await output_stream.told(but_for=MOST_UNTOLD)

    @property
    def _is_repeat(self) -> bool:
        """Whether an earlier run of the job may have emitted text."""
        claim = self._claim
        return claim.events > FIRST_RUN or claim.generation > 0

    async def _follow(self, output_stream: OutputStream) -> None:
        """Let the text go on from what readers have; if unknown, it begins anew."""
        storage, claim = self._services.storage, self._claim
        if storage is None or not claim.token:
            return
        try:
            draft = await storage.draft(claim.id, Owner(claim.tenant, claim.user))
        except (StoreUnavailable, ValueError) as error:
            log.warning("streamed text not read", error_type=type(error).__name__)
        else:
            output_stream.follow(draft.text)

    @property
    def text(self) -> str:
        """All that this attempt has emitted."""
        return "" if self.output_stream is None else self.output_stream.text

    def used(
        self,
        model: str,
        *,
        input_tokens: int,
        output_tokens: int,
        provider: str | None = None,
        cached_tokens: int = 0,
    ) -> None:
        """
        Book what a call used of a model, as its provider counted it.

        It stays booked whatever the attempt comes to. `cached_tokens` are some of the
        input's.
        """
        call = usage(model, input_tokens, output_tokens, provider, cached_tokens)
        self.spending.add(call)

    def _book(self, call: Usage, *, is_estimate: bool) -> None:
        """Book a call of the asker; see `Book`."""
        self.spending.add(call, is_estimate=is_estimate)

    @property
    def usage(self) -> tuple[Usage, ...]:
        """What `used` was told, in order."""
        usage_log = None if self.spent is None else self.spent.usage_log
        return () if usage_log is None else usage_log.calls

    async def used_before(self) -> Spent:
        """Add up what earlier attempts used of models, since it was last retried."""
        usage_sink = self._services.usage_sink
        return (
            NOTHING
            if usage_sink is None
            else await usage_sink.spent_before(self._claim)
        )

    async def used_by(self, step: str) -> Spent:
        """Add up what a step of `needs` used of models, by all of its runs."""
        usage_sink, given = self._services.usage_sink, self.needs[step]
        return (
            NOTHING if usage_sink is None else await usage_sink.spent_on(given.job_id)
        )

    def lane(
        self,
        provider: str,
        model: str,
        *,
        credential: str | None = None,
        label: str | None = None,
        tokens: int | None = None,
    ) -> Call:
        """
        Wait for leave to call a provider: `async with ctx.lane(…) as call:`.

        The lane is the fleet's: all workers keep its limits together. If its turn is
        not near, the job is put back at no cost of an attempt and its slot is free;
        if this attempt has already paid for a call, it waits here instead.
        Of a `credential` only a digest is kept; a `label` stands for it is.
        `tokens` is what the call is expected to use; unless said, what the job is.
        """
        name = lane_name(provider, model, credential, label)
        expected = self._claim.tokens if tokens is None else tokens
        return Call(
            self._services.lanes,
            name,
            tokens=expected or 0,
            waited=self._claim.throttled,
            spending=self.spending,
        )

    def _call(
        self,
        provider: str,
        model: str,
        *,
        credential: str | None,
        is_paced: bool,
        waits: bool,
    ) -> Call:
        """Return a call that the asker makes; see `LaneOf`."""
        return Call(
            self._services.lanes if is_paced else None,
            lane_name(provider, model, credential),
            tokens=self._claim.tokens or 0,
            waited=self._claim.throttled,
            spending=self.spending,
            waits=waits,
            within=self._model_lane,
        )

    @property
    def _model_lane(self) -> str | None:
        """The lane of its application, by which all model calls of that go."""
        providers = self._services.providers
        lanes = {} if providers is None else providers.lanes
        return lanes.get(self._claim.capability)

    @property
    def ai(self) -> Asker:
        """Who asks models for this job: by lanes, booked, with `calls` to look at."""
        if self._asker is None:
            if self._services.providers is None:
                raise PermanentError("no model provider is configured here")
            self._asker = Asker(
                self._services.providers,
                lane=self._call,
                book=self._book,
                emit=self.emit,
                capability=self._claim.capability,
                spending=self.spending,
            )
        return self._asker

    @overload
    async def step(
        self,
        name: str,
        compute: Callable[..., Awaitable[T]],
        *args: Any,
        into: Any = None,
        once: bool = False,
        reconcile: Callable[..., Any] | None = None,
        in_doubt: str = InDoubt.FAIL,
        **named: Any,
    ) -> T: ...

    @overload
    async def step(
        self,
        name: str,
        compute: Callable[..., T],
        *args: Any,
        into: Any = None,
        once: bool = False,
        reconcile: Callable[..., Any] | None = None,
        in_doubt: str = InDoubt.FAIL,
        **named: Any,
    ) -> T: ...

    async def step(
        self,
        name: str,
        compute: Callable[..., Any],
        *args: Any,
        into: Any = None,
        once: bool = False,
        reconcile: Callable[..., Any] | None = None,
        in_doubt: str = InDoubt.FAIL,
        **named: Any,
    ) -> Any:
        """
        Compute a result once for this job: `await ctx.step("charge", charge, order)`.

        The result is stored before this returns. If the handler runs again, after a
        crash, a failed attempt or a retry, it gets the stored result and `compute` is
        not called. A crash before the result is stored calls it again. A name is used
        once in a run. The result is read back as `into`, else as the type that
        `compute` is annotated to return, else as JSON.

        With `once`, that the step begins is stored before `compute` is called. After
        a crash in between, `reconcile` is called with the same arguments: it returns
        the result if the step happened, else `NOT_DONE`. Without it `in_doubt` says
        what to do: `fail` the job, `retry` the step, or `ask_person`.
        """

        def running(function: Callable[..., Any]) -> Callable[[], Awaitable[Any]]:
            async def run() -> Any:
                value = function(*args, **named)
                return await value if isawaitable(value) else value

            return run

        shape = into or _return_type(compute)
        policy = InDoubt(in_doubt)
        found = None if reconcile is None else running(reconcile)
        if found is None and policy is InDoubt.ASK_PERSON:
            found = partial(self._ask_whether_done, name, shape)
        guard = Once(found, policy) if once or found else None
        return await self.steps.named(name, running(compute), shape, guard)

    async def _ask_whether_done(self, step: str, shape: Any) -> Any:
        """Ask a person what became of a step; return its result or `NOT_DONE`."""
        into = Resolution.__class_getitem__(shape)
        answer = await self.ask_person(
            f"Step {step!r} of this job began, and its worker was lost before it "
            "reported a result. Did the step happen, and with which result?",
            into=into,
        )
        return answer.result if answer.done else NOT_DONE

    async def forget(self, step: str | None = None) -> None:
        """
        Discard a step's stored result, so that the next run computes it again.

        Without a name it is the answer of this run's last model call: for a handler
        that rejects an answer and raises to have the model asked again.
        """
        await self.steps.forget(step)

    @overload
    async def ask(
        self,
        prompt: str | Sequence[Message],
        *,
        into: type[T],
        remember: bool = True,
        **options: Any,
    ) -> T: ...

    @overload
    async def ask(
        self,
        prompt: str | Sequence[Message],
        *,
        into: None = None,
        remember: bool = True,
        **options: Any,
    ) -> str: ...

    async def ask(
        self,
        prompt: str | Sequence[Message],
        *,
        into: Any = None,
        remember: bool = True,
        **options: Any,
    ) -> Any:
        """
        Ask a model, if you like `into` a type; takes what `Asker.ask` takes.

        The answer is a step: a later run of the job gets it without another call.
        `remember=False` asks again each time.
        """
        called = partial(self.ai.ask, prompt, into=into, **options)
        if not remember:
            return await called()
        schema = None if into is None else shape_of(into).schema
        request = {k: v for k, v in options.items() if k not in NOT_REQUESTED}
        answer, is_stored = await self._remembered(
            "ask",
            request_of(prompt=prompt, schema=schema, **request),
            called,
            into,
            corrects=into is not None,
        )
        stream = options.get("stream")
        if is_stored and stream:
            await (stream if callable(stream) else self.emit)(answer)
        return answer

    async def embed(
        self, texts: Sequence[str], *, remember: bool = True, **options: Any
    ) -> Vectors:
        """Return a vector for each text; takes what `Asker.embed` takes."""
        called = partial(self.ai.embed, texts, **options)
        if not remember:
            return await called()
        request = request_of(texts=texts, model=options.get("model"))
        answer, _ = await self._remembered("embed", request, called, Vectors)
        return Vectors(*answer)

    async def transcribe(
        self, audio: bytes, mime_type: str, *, remember: bool = True, **options: Any
    ) -> str:
        """Write down a recording; takes what `Asker.transcribe` takes."""
        called = partial(self.ai.transcribe, audio, mime_type, **options)
        return await self._media("transcribe", audio, mime_type, called, remember)

    async def describe(
        self, image: bytes, mime_type: str, *args: Any, **options: Any
    ) -> str:
        """Say what is in a picture; takes what `Asker.describe` takes."""
        remember = options.pop("remember", True)
        called = partial(self.ai.describe, image, mime_type, *args, **options)
        return await self._media(
            "describe", image, mime_type, called, remember, *args, **options
        )

    async def _media(
        self,
        kind: str,
        content: bytes,
        mime_type: str,
        called: Callable[[], Awaitable[str]],
        remember: bool,
        *args: Any,
        **options: Any,
    ) -> str:
        if not remember:
            return await called()
        digest = sha256(content).hexdigest()
        options.pop("seconds", None)
        request = request_of(content=digest, type=mime_type, args=args, **options)
        answer, _ = await self._remembered(kind, request, called, str)
        return str(answer)

    async def _remembered(
        self,
        kind: str,
        request: bytes,
        called: Callable[..., Awaitable[Any]],
        into: Any,
        *,
        corrects: bool = False,
    ) -> tuple[Any, bool]:
        """Return a model's answer and whether an earlier run of the job got it."""
        asker = self.ai

        async def compute(key: str) -> Answered[Any]:
            before = len(asker.calls)
            draft = {"draft": StepDraft(self.steps, asker, key)} if corrects else {}
            with billed() as bill:
                value = await called(**draft)
            self.spending.store(bill)
            return Answered(value=value, calls=[*asker.calls[before:]])

        shape: Any = Answered.__class_getitem__(str if into is None else into)
        answered, is_stored = await self.steps.call(kind, request, compute, shape)
        if is_stored:
            self.spending.has_recalled = True
            asker.recall(answered.calls)
        return answered.value, is_stored

    @property
    def steps(self) -> StepJournal:
        """The steps of this run."""
        if self._steps is None:
            services = self._services
            self._steps = StepJournal(
                self._claim,
                services.storage,
                services.payloads or Payloads(),
                self.spending,
                lose=services.lose,
                report=lambda kind, data: self._speak().mark(kind, data),
            )
        return self._steps

    @property
    def waiting(self) -> Waiting:
        """The waits of this run."""
        if self._waiting is None:
            services = self._services
            self._waiting = Waiting(
                self._claim,
                services.storage,
                self.steps,
                now=self.spending.now,
                lose=services.lose,
            )
        return self._waiting

    @property
    def open_waits(self) -> tuple[str, ...]:
        """The names of the waits that were not decided when this run asked."""
        return () if self._waiting is None else tuple(self._waiting.names)

    async def sleep(self, delay: float | timedelta) -> None:
        """
        Wait without holding a slot: `await ctx.sleep(60)`, or a `timedelta`.

        The job is `scheduled` meanwhile, for seconds or weeks, and uses no attempt.
        Then the handler runs again from the top, gets the results of its steps and
        passes the sleep. The first run decides when it is over.
        """
        await self.waiting.sleep(delay)

    @overload
    async def wait(
        self,
        name: str,
        *,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - of the job
        into: type[T],
    ) -> T: ...

    @overload
    async def wait(
        self,
        name: str,
        *,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - of the job
        into: None = None,
    ) -> Any: ...

    async def wait(
        self,
        name: str,
        *,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - of the job
        into: Any = None,
    ) -> Any:
        """
        Return what a signal brings: `await ctx.wait("paid", into=Payment)`.

        The job is `waiting` meanwhile: it holds no slot and uses no attempt. The
        signal may have come before. Without one in time, `WaitTimedOut` is raised.
        """
        return await self.waiting.signal(name, timeout, into)

    @overload
    async def run(
        self, capability: Typed[In, Out], value: In, **options: Unpack[SubmitOptions]
    ) -> Out: ...

    @overload
    async def run(
        self, capability: str, value: Any, **options: Unpack[SubmitOptions]
    ) -> Any: ...

    async def run(
        self, capability: Any, value: Any, **options: Unpack[SubmitOptions]
    ) -> Any:
        """
        Run another job and return its output; takes the options of `submit`.

        This job is `waiting` meanwhile and holds no slot. The child is submitted once
        and its output is stored as a step. `ChildFailed` is raised if it fails or is
        cancelled. The child goes on if this job is cancelled.
        """
        services = self._services
        if self._children is None:
            self._children = Children(
                self._claim,
                self.steps,
                self.waiting,
                services.storage,
                services.payloads or Payloads(),
            )

        async def submit(key: str) -> str:
            chosen: Any = {
                **inherited(self._claim),
                "idempotency_key": key,
                **options,
                "owner": Owner(self._claim.tenant, self._claim.user),
                "parent": {"id": self._claim.id, "queue": self._claim.queue},
            }
            return str((await services.submit(capability, value, **chosen)).id)

        is_name = isinstance(capability, str)
        name = capability if is_name else capability.name
        output = await self._children.run(name, value, submit)
        return output if is_name else capability.output.validate_json(to_json(output))

    async def ask_person(
        self,
        question: str,
        *,
        into: Any = None,
        choices: Sequence[str] | None = None,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - of the job
        default: Any = NO_DEFAULT,
        name: str | None = None,
    ) -> Any:
        """
        Ask a person: `await ctx.ask_person("Send it?", choices=["yes", "no"])`.

        The job is `waiting` until its owner, or a key with the scope
        `questions:answer` in its tenant, answers. An answer is one of the `choices`
        and matches `into`. Without one in time the `default` is returned, or
        `WaitTimedOut` raised if there is none. A question is known by its text;
        `name` gives it another name.
        """
        if self._questions is None:
            self._questions = Questions(self.waiting)
        return await self._questions.ask(
            question,
            into=into,
            choices=choices,
            limit=timeout,
            default=default,
            name=name,
        )

    @property
    def has_steps(self) -> bool:
        """Whether this run has come to a step."""
        return self._steps is not None

    async def flush(self) -> None:
        """Have the answers stored before something else is done with them."""
        if self._steps is not None:
            await self._steps.flush()

    def end(self) -> None:
        """Let the handler, which has ended, do nothing more."""
        self.is_over = True
        if self.spent is not None:
            self.spent.is_over = True

    async def part(self, *, is_done: bool) -> None:
        """End the run's steps; see `StepJournal.part`."""
        if self._steps is not None:
            await self._steps.part(is_done=is_done)

    async def deliver(self, url: str, body: bytes, *, topic: str) -> None:
        """
        Post a signed body to an address that a caller gave; return if it is accepted.

        It has this job's id at every attempt, and its request's id. What goes wrong
        is raised as what it means: worth another attempt, later, or never.
        """
        if self._services.callback_sender is None:
            raise TransientError("this process does not deliver webhooks")
        await self.flush()
        await self._services.callback_sender.send(self._claim, url, body, topic)

    @property
    def http(self) -> Http:
        """
        Other servers over HTTP: `await ctx.http.get(url)`, `await ctx.http.post(url)`.

        Only public addresses are reached, and what the operator adds. Answers are
        bounded in size and time; what goes wrong is raised as what it means: worth
        another attempt, later, or never.
        """
        if self._services.http is None:
            raise TransientError("this process does not send requests")
        return self._services.http()

    async def read(
        self, body: Callable[Concatenate[View, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """
        Run a plain function over what is committed now; it cannot write.

        It gets the database as it is at one instant, and what else is given.
        """
        return await self._database().read(lambda view: body(view, *args, **named))

    async def draft_of(self, job_id: str) -> Draft:
        """
        Return the state of another job and the text that it has streamed so far.

        The job must have the same owner as this one; otherwise `JobNotFound`.
        """
        owner = Owner(self._claim.tenant, self._claim.user)
        return await self._database().draft(job_id, owner)

    async def transact(
        self,
        body: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        """
        Run a plain function in one transaction, committed when this returns.

        It gets the transaction, and what else is given. It is committed only if this
        worker still holds the job; otherwise `ClaimLost` is raised and the attempt is
        over. A body that takes longer than
        `BACKBURNER_TRANSACTION_SECONDS` is rolled back: `TransactionTooLong`. If the
        job runs again, as after a lost worker, it may commit again: write so that a
        repeat changes nothing, or use `at_settlement`.
        """
        database = self._database()
        if not self._claim.token:
            raise PermanentError(
                "only a job can write to the database, and this call is not part of one"
            )
        await self.flush()
        try:
            return await database.transact(
                lambda tx: body(tx, *args, **named), claim=self._claim
            )
        except ClaimLost:
            if self._services.lose is not None:
                self._services.lose(self._claim)
            raise

    async def running(self, queue: str, *, longer_than: timedelta) -> list[Running]:
        """
        Return jobs of a queue whose run takes longer than it should, whoever's.

        Of the newest 1,000 that run; for an application that reports on its queues.
        """
        least = longer_than // timedelta(milliseconds=1)
        found = await self._database().running(queue)
        return [job for job in found if job.duration_ms > least]

    def _database(self) -> Storage:
        if self._services.storage is None:
            raise PermanentError("no database is available here")
        return self._services.storage

    def at_settlement(self, body: Callable[[Transaction], None]) -> None:
        """
        Write to the database together with this job's success, or not at all.

        `body` is a plain function; it runs in the transaction that settles the job,
        after the handler returned. If it raises, the attempt has failed.
        """
        if self._bodies is None:
            self._bodies = []
        self._bodies.append(body)

    @overload
    async def submit(
        self,
        capability: Typed[In, Out],
        value: In,
        **options: Unpack[SubmitOptions],
    ) -> Ticket[Out]: ...

    @overload
    async def submit(
        self, capability: str, value: Any, **options: Unpack[SubmitOptions]
    ) -> Ticket[Any]: ...

    async def submit(
        self, capability: Any, value: Any, **options: Unpack[SubmitOptions]
    ) -> Any:
        """Submit another job, durable when this returns; takes what `submit` takes."""
        await self.flush()
        chosen: SubmitOptions = {**inherited(self._claim), **options}
        return await self._services.submit(capability, value, **chosen)

    @property
    def blobs(self) -> JobBlobs:
        """
        Contents of this job: `await ctx.blobs.put(bytes)` gives an id to `get` by.

        They are kept for as long as the job is. Large inputs and outputs go that way
        by themselves.
        """
        if self._blobs is None:
            self._blobs = JobBlobs(self._claim, self._services.payloads or Payloads())
        return self._blobs

    @property
    def app_blobs(self) -> AppBlobs:
        """
        What the application of this job keeps for the job's owner.

        These blobs outlive the job, and are written and read as streams. A run that
        is repeated writes again: give the blob a time to live, or delete it.
        """
        if self._services.payloads is None or self._services.payloads.of_app is None:
            raise PermanentError("blobs of applications are not available here")
        return self._services.payloads.of_app(self._claim)

    def _speak(self) -> OutputStream:
        if self.output_stream is None:
            self.output_stream = OutputStream(self._claim, self._services.output_sink)
        return self.output_stream

    @property
    def flow(self) -> Flow:
        """
        The flow that this job is a step of, to add steps to: `ctx.flow.add(…)`.

        They are stored together with this step's success, or not at all, and begin
        after it; those `after=[ctx.anyway]` are stored also if it fails for good.
        `before=["join"]` has a step wait for them that waits for this one.
        """
        if self._claim.flow is None:
            raise PermanentError("this job is not a step of a flow")
        if self._flow is None:
            self._flow = Flow(prefix=f"{self._claim.step}/")
        return self._flow

    @property
    def anyway(self) -> Edge:
        """The step as one that need not succeed: `ctx.flow.add(…, after=[…])`."""
        return Edge(self._claim.step or "", continues=True)

    @property
    def added_steps(self) -> tuple[Planned, ...]:
        """What was added to the flow, in order."""
        return () if self._flow is None else tuple(self._flow.steps)

    @property
    def brought(
        self,
    ) -> tuple[Sequence[Callable[[Transaction], None]], Sequence[Planned]]:
        """What is written with its success: `settlement_bodies`, `added_steps`."""
        if self._bodies is None and self._flow is None:
            return (), ()
        return self.settlement_bodies, self.added_steps

    @property
    def settlement_bodies(self) -> tuple[Callable[[Transaction], None], ...]:
        """What `at_settlement` was given, in order."""
        return tuple(self._bodies or ())


def _return_type(compute: Callable[..., Any]) -> Any:
    """Return the type that a function is annotated to return; `Any` if none."""
    if "return" not in getattr(compute, "__annotations__", ()):
        return Any
    # A function within a function is another one each time.
    is_lasting = isinstance(compute, FunctionType) and (
        "<locals>" not in compute.__qualname__
    )
    return _known_hint(compute) if is_lasting else _hint(compute)


def _hint(compute: Callable[..., Any]) -> Any:
    try:
        return get_type_hints(compute).get("return", Any)
    except Exception:  # noqa: BLE001 - a name in it may not be known
        return Any


_known_hint: Callable[[Callable[..., Any]], Any] = lru_cache(maxsize=256)(_hint)


def _number(value: float) -> float:
    """Take a number; anything else is the handler's own mistake, told to it."""
    # JSON holds whole numbers up to 64 bits: a larger one would cost others theirs.
    is_whole = isinstance(value, int) and abs(value) <= LARGEST_WHOLE
    return value if is_whole else float(value)
