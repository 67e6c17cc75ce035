"""
Calls models: rate limits, time limit, fallback providers, typed answers.

An `Asker` makes calls for a job, or outside of jobs, with the same code.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol, TypeVar, overload

from backburner.domain.ai import CORRECTION, NOT_CONFIGURED, Purpose, Trouble
from backburner.domain.costs.tokens import estimate
from backburner.domain.costs.usage import MOST_TOKENS, Usage, usage
from backburner.domain.errors import (
    AnswerTruncated,
    PermanentError,
    Throttled,
    TransientError,
    WorkError,
)
from backburner.domain.jobs.job import Wait, WaitReason
from backburner.domain.jobs.wait import Suspended
from backburner.domain.lanes.lane import lane_name
from backburner.domain.lanes.rate_limit_headers import rate_limit_info
from backburner.engine.models.lanes import Call
from backburner.engine.models.shapes import Shape, mistakes, shape_of, trouble_of
from backburner.engine.models.spending import Spending
from backburner.engine.observability import telemetry
from backburner.ports.ai import (
    Chat,
    Fault,
    Hear,
    Media,
    Message,
    Provider,
    Reply,
    Tokens,
    Vector,
)
from backburner.ports.clock import Clock
from backburner.ports.log import log

T = TypeVar("T")

SECONDS: Final = 60.0
NEAR_SECONDS: Final = 1.0
"""How many seconds a run waits in place for a provider that refused a call."""
SHORTEST_WAIT: Final = 0.1
"""The minimum wait before a provider is asked again, so that retries end."""


_SETTING: Final[Mapping[Purpose, str]] = {
    "chat": "BACKBURNER_AI_TEXT",
    "embedding": "BACKBURNER_AI_EMBEDDING",
    "transcription": "BACKBURNER_AI_AUDIO",
    "vision": "BACKBURNER_AI_VISION",
}


class Called(NamedTuple):
    """One answered call and its usage."""

    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    duration_ms: int


class Correction(NamedTuple):
    """An invalid answer, just before the model is asked to correct it."""

    code: str
    """`AI_INVALID_JSON` or `AI_SCHEMA_VIOLATION`."""
    reason: str
    """The error, without values of the answer."""
    provider: str
    model: str
    length: int
    """The number of characters of the answer."""


class AnswerDraft(Protocol):
    """Stores an answer that is being corrected, so that it is paid for once."""

    async def read(self) -> str | None:
        """Return the answer that an earlier run received but did not correct."""
        ...

    async def keep(self, text: str) -> None:
        """Store an answer; return when it is stored."""
        ...

    async def drop(self) -> None:
        """Discard the answer, because its correction is invalid too."""
        ...


class Choice(NamedTuple):
    """A provider and its model, as the settings name them."""

    provider: str
    model: str


class Vectors(NamedTuple):
    """Texts as vectors; only vectors of the same model can be compared."""

    model: str
    vectors: Sequence[Vector]


@dataclass(frozen=True, slots=True)
class Providers:
    """The providers, in the order in which they are tried."""

    chain: Sequence[Provider]
    clock: Clock
    seconds: float = SECONDS
    """The default time limit of an answer, in seconds."""
    codes: Mapping[tuple[str, Purpose], str] = field(default_factory=dict)
    """By capability and purpose, the error code if no provider is available."""
    by_purpose: Mapping[Purpose, Sequence[Provider]] = field(default_factory=dict)
    """The providers of purposes that have their own list."""
    lanes: Mapping[str, str] = field(default_factory=dict)
    """By capability, a lane for all of its calls in addition to the models' lanes."""
    fallbacks: Mapping[tuple[str, Purpose], Sequence[Provider]] = field(
        default_factory=dict
    )
    """By capability and purpose, its application's providers if none is configured."""

    def of(self, purpose: Purpose, capability: str = "") -> Sequence[Provider]:
        """Return the providers for a purpose, in order of preference."""
        fallback = self.fallbacks.get((capability, purpose))
        return (
            self.by_purpose.get(purpose, self.chain) if fallback is None else fallback
        )

    async def close(self) -> None:
        """Close connections."""
        chains = (self.chain, *self.by_purpose.values(), *self.fallbacks.values())
        for provider in {id(each): each for chain in chains for each in chain}.values():
            await provider.close()


class LaneOf(Protocol):
    """Gives the lane of a provider."""

    def __call__(
        self,
        provider: str,
        model: str,
        *,
        credential: str | None,
        is_paced: bool,
        waits: bool,
    ) -> Call:
        """
        Return a call in the lane.

        Unless it `is_paced`, it needs no permit. If it `waits`, a run that has paid for
        other calls waits for a permit; otherwise it gets the time of its turn.
        """
        ...


class Book(Protocol):
    """Records usage."""

    def __call__(self, call: Usage, *, is_estimate: bool) -> None:
        """Record one call; its tokens may be an estimate."""
        ...


class _Work(NamedTuple):
    """A call that one of the providers will make."""

    purpose: Purpose
    do: Callable[[Provider, str], Awaitable[Reply[Any]]]
    wanted: str | None = None
    """The name of a model of the first provider."""
    speech: "_Speech | None" = None
    """Streams the text to readers."""
    read: Callable[[], str] = str
    """Returns the text that the model reads, for providers that do not count tokens."""


class _Time:
    """The time limit of an answer; waits for lanes do not count."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + seconds

    def now(self) -> float:
        return self._loop.time()

    def extend(self, seconds: float) -> None:
        """Extend the limit by a wait that does not count."""
        self._until += seconds

    def share(self, parts: int) -> float:
        """Return the end of the first of `parts` equal parts of the remaining time."""
        now = self.now()
        return now + (self._until - now) / parts


class _Speech:
    """Passes text on, and records whether there was any."""

    def __init__(self, emit: Hear | None) -> None:
        self._emit = emit
        self.call: Call | None = None
        """The call that produces the text."""
        self.has_begun = False
        """Whether readers have received some text."""

    async def hear(self, text: str) -> None:
        if not text or self._emit is None:
            return
        if not self.has_begun and self.call is not None:
            # The call was accepted: others that wait for that can go on now.
            self.call.hear(HTTPStatus.OK)
        self.has_begun = True
        await self._emit(text)


class Asker:
    """
    Asks models on behalf of one job or request.

    Errors are raised as the engine's own exceptions, with `AI_…` codes.
    """

    def __init__(
        self,
        providers: Providers,
        *,
        lane: LaneOf | None = None,
        book: Book | None = None,
        emit: Hear | None = None,
        capability: str = "",
        spending: Spending | None = None,
    ) -> None:
        """
        Without a `lane` calls are not paced, without `book` usage is not recorded.

        `capability` is the name of the calling capability. With `spending`, a run that
        has paid for a call waits for its next one.
        """
        self._providers = providers
        self._lane = lane
        self._book = book
        self._emit = emit
        self._capability = capability
        self._spending = spending
        self._calls: list[Called] = []
        self._made: list[Called] = []

    @property
    def calls(self) -> Sequence[Called]:
        """The answered calls so far, in order, with their providers."""
        return tuple(self._calls)

    @property
    def made(self) -> Sequence[Called]:
        """The calls that this run made: `calls` without those of earlier runs."""
        return tuple(self._made)

    def recall(self, calls: Iterable[Called]) -> None:
        """Add calls of an earlier run whose answers are reused."""
        self._calls += calls

    def first(self, purpose: Purpose = "chat") -> Choice | None:
        """Return the provider and model that are asked first for a purpose."""
        for provider in self._providers.of(purpose, self._capability)[:1]:
            return Choice(provider.name, str(getattr(provider.models, purpose)))
        return None

    @overload
    async def ask(
        self,
        prompt: str | Sequence[Message],
        *,
        into: type[T],
        system: str | None = None,
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seconds: float | None = None,
        on_correction: Callable[[Correction], None] | None = None,
        draft: AnswerDraft | None = None,
    ) -> T: ...

    @overload
    async def ask(
        self,
        prompt: str | Sequence[Message],
        *,
        into: None = None,
        system: str | None = None,
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seconds: float | None = None,
        stream: bool | Hear = False,
        partial: bool = False,
    ) -> str: ...

    async def ask(  # noqa: PLR0913 - a question has many sides
        self,
        prompt: str | Sequence[Message],
        *,
        into: Any = None,
        system: str | None = None,
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seconds: float | None = None,
        stream: bool | Hear = False,
        partial: bool = False,
        on_correction: Callable[[Correction], None] | None = None,
        draft: AnswerDraft | None = None,
    ) -> Any:
        """
        Ask a model; with `into`, return its answer as that type.

        An answer that does not match is sent back to the model once, with the errors;
        `on_correction` is called before, and its exceptions are only logged. `seconds`
        limits the total time without waits for lanes. With `stream` the text is emitted
        as it arrives, or passed to `stream` if that is a function. An answer that
        reached its token limit raises `AnswerTruncated`, unless `partial` is set. An
        answer that is being corrected is stored in `draft` meanwhile.
        """
        if stream and into is not None:
            raise ValueError("an answer that may be corrected cannot be streamed")
        time = self._time(seconds)
        messages = _conversation(prompt, system)
        chat = Chat(messages, "", temperature, max_tokens)
        if into is None:
            return await self._complete(
                chat, model, time, stream=stream, partial=partial
            )
        shape = shape_of(into)
        return await self._structured(chat, model, time, shape, on_correction, draft)

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        seconds: float | None = None,
    ) -> Vectors:
        """Return a vector for each text, from the first provider only."""
        work = _Work(
            "embedding",
            lambda p, m: p.embed(texts, m),
            model,
            read=lambda: "\n".join(texts),
        )
        chain = self._providers.of("embedding", self._capability)[:1]
        reply = await self._answered(work, self._time(seconds), chain)
        return Vectors(reply.model, reply.content)

    async def transcribe(
        self,
        audio: bytes,
        mime_type: str,
        *,
        model: str | None = None,
        seconds: float | None = None,
    ) -> str:
        """Return the transcript of a recording."""
        media = Media(audio, mime_type)
        work = _Work("transcription", lambda p, m: p.transcribe(media, m), model)
        return str((await self._answered(work, self._time(seconds))).content)

    async def describe(
        self,
        image: bytes,
        mime_type: str,
        prompt: str = "Describe this picture.",
        *,
        model: str | None = None,
        seconds: float | None = None,
    ) -> str:
        """Describe a picture."""
        media = Media(image, mime_type)
        work = _Work(
            "vision",
            lambda p, m: p.describe(media, prompt, m),
            model,
            read=lambda: prompt,
        )
        return _whole(await self._answered(work, self._time(seconds)))

    async def _structured(
        self,
        chat: Chat,
        model: str | None,
        time: _Time,
        shape: Shape,
        on_correction: Callable[[Correction], None] | None,
        draft: AnswerDraft | None,
    ) -> Any:
        messages = _conversation(chat.messages, shape.instruction)
        chat = replace(chat, messages=messages, schema=shape.schema)
        kept = None if draft is None else await draft.read()
        text = await self._complete(chat, model, time) if kept is None else kept
        try:
            return shape.read(text)
        except ValueError as error:
            why, code = mistakes(error), trouble_of(error)
        if kept is None:
            log.warning("invalid answer, asking for a correction", code=code)
            last = self._calls[-1]
            seen = Correction(code, why, last.provider, last.model, len(text))
            if on_correction is not None:
                _observed(on_correction, seen)
            if draft is not None:
                await draft.keep(text)
        correction = f"{CORRECTION}{why}\nAnswer once more, with the JSON only."
        shown = (Message("assistant", text), Message("user", correction))
        again = replace(chat, messages=(*chat.messages, *shown))
        text = await self._complete(again, model, time)
        try:
            return shape.read(text)
        except ValueError as error:
            if draft is not None:
                await draft.drop()
            raise PermanentError(
                f"the model's answer cannot be used: {mistakes(error)}",
                code=trouble_of(error),
            ) from None

    async def _complete(
        self,
        chat: Chat,
        model: str | None,
        time: _Time,
        *,
        stream: bool | Hear = False,
        partial: bool = False,
    ) -> str:
        emit = stream if callable(stream) else self._emit
        speech = _Speech(emit) if stream else None
        hear = None if speech is None else speech.hear

        def do(provider: Provider, name: str) -> Awaitable[Reply[str]]:
            return provider.chat(replace(chat, model=name), hear)

        def read() -> str:
            return "\n".join(message.text for message in chat.messages)

        work = _Work("chat", do, model, speech, read)
        return _whole(await self._answered(work, time), partial=partial)

    async def _answered(
        self, work: _Work, time: _Time, chain: Sequence[Provider] | None = None
    ) -> Reply[Any]:
        """Return the first answer; a run that has paid for calls waits for it."""
        if chain is None:
            chain = self._providers.of(work.purpose, self._capability)
        if not chain:
            raise self._not_configured(work.purpose)
        waited = 0.0
        while True:
            try:
                return await self._tried(work, time, chain)
            except Throttled as refusal:
                wait = refusal.retry_after
                self._suspend(work, refusal)
                if wait is None or waited + wait > self._patience(work):
                    raise
            wait = max(wait, SHORTEST_WAIT)
            await asyncio.sleep(wait)  # noqa: TID251 - until the provider's time
            waited += wait
            time.extend(wait)

    def _suspend(self, work: _Work, refusal: Throttled) -> None:
        """End a run that can be suspended, unless the provider is available soon."""
        spending, wait = self._spending, refusal.retry_after
        has_begun = work.speech is not None and work.speech.has_begun
        if spending is None or wait is None or wait <= NEAR_SECONDS or has_begun:
            return
        if not spending.can_be_suspended:
            return
        until = spending.now() + int(wait * 1000)
        spending.suspended = Wait(WaitReason.LANE, refusal.lane, until)
        raise Suspended(spending.suspended)

    def _patience(self, work: _Work) -> float:
        """Return how long to wait for a provider that gives a time for the next try."""
        has_begun = work.speech is not None and work.speech.has_begun
        if self._spending is None or not self._has_paid or has_begun:
            return -1.0
        return self._spending.patience

    @property
    def _has_paid(self) -> bool:
        return self._spending is not None and self._spending.has_paid

    async def _tried(
        self, work: _Work, time: _Time, chain: Sequence[Provider]
    ) -> Reply[Any]:
        """Return the first answer; a provider without one is skipped."""
        errors: list[WorkError] = []
        for n, provider in enumerate(chain):
            try:
                # A provider that does not respond must leave time for the next ones.
                return await self._by(
                    provider, work, time, place=n, providers=len(chain)
                )
            except WorkError as error:
                if not _may_be_passed_over(error):
                    raise
                errors.append(error)
                if work.speech is not None and work.speech.has_begun:
                    break
                if provider is not chain[-1]:
                    code = error.problem_code
                    log.warning("provider skipped", provider=provider.name, code=code)
        raise _soonest(errors)

    async def _by(
        self,
        provider: Provider,
        work: _Work,
        time: _Time,
        *,
        place: int,
        providers: int,
    ) -> Reply[Any]:
        """Call the provider at this position of the list."""
        wanted = work.wanted if place == 0 else None
        model = wanted or str(getattr(provider.models, work.purpose))
        asked_at = time.now()
        try:
            # While its lane is full, the next provider is asked, if there is one.
            async with self._leave(provider, model, waits=providers == 1) as call:
                time.extend(time.now() - asked_at)
                until = time.share(providers - place)
                if work.speech is not None:
                    work.speech.call = call
                reply = await self._timed(provider, work, model, until)
                call.hear(HTTPStatus.OK, reply.headers)
                telemetry.model_asked(provider.name, work.purpose)
                return reply
        except Fault as fault:
            telemetry.model_asked(provider.name, work.purpose, fault.trouble)
            raise self._judged(provider, fault) from fault
        except Throttled as refusal:
            cause = refusal.__cause__  # none if the lane is full or parked
            if isinstance(cause, Fault):
                telemetry.model_asked(provider.name, work.purpose, cause.trouble)
                raise self._judged(provider, cause, refusal) from cause
            raise

    def _not_configured(self, purpose: Purpose) -> PermanentError:
        code = self._providers.codes.get((self._capability, purpose), NOT_CONFIGURED)
        return PermanentError(
            f"no model provider is configured for the purpose {purpose!r}: "
            f"set {_SETTING[purpose]} or BACKBURNER_AI, for example to openai or, to "
            "try things out, to mock",
            code=code,
        )

    def _leave(self, provider: Provider, model: str, *, waits: bool) -> Call:
        if self._lane is None:
            return Call(None, lane_name(provider.name, model, provider.credential))
        return self._lane(
            provider.name,
            model,
            credential=provider.credential,
            is_paced=provider.is_paced,
            waits=waits,
        )

    def _is_paced(self, provider: Provider) -> bool:
        return self._lane is not None and provider.is_paced

    async def _timed(
        self, provider: Provider, work: _Work, model: str, until: float
    ) -> Reply[Any]:
        loop = asyncio.get_running_loop()
        begun, reply = loop.time(), None
        try:
            async with asyncio.timeout_at(until):
                reply = await work.do(provider, model)
        except TimeoutError:
            raise Fault(Trouble.TIMEOUT, "the call exceeded its time limit") from None
        except Fault as fault:
            reply = fault.reply
            raise
        finally:
            if reply is not None:
                self._note(provider, reply, loop.time() - begun, work.read)
        return reply

    def _note(
        self,
        provider: Provider,
        reply: Reply[Any],
        seconds: float,
        read: Callable[[], str],
    ) -> None:
        tokens = _believable(reply.tokens or _estimated(reply, read()))
        took = round(seconds * 1000)
        made = Called(provider.name, reply.model, *tokens, took)
        self._calls.append(made)
        self._made.append(made)
        if self._book is not None:
            call = usage(
                reply.model, tokens.input, tokens.output, provider.name, tokens.cached
            )
            call = call._replace(duration_ms=took)
            self._book(call, is_estimate=reply.tokens is None)

    def _judged(
        self, provider: Provider, fault: Fault, refusal: Throttled | None = None
    ) -> WorkError:
        """Convert a fault into an error of the engine."""
        message, code = f"{provider.name}: {fault}", fault.trouble
        if not code.is_passing:
            return PermanentError(message, code=code)
        if refusal is None or fault.status_code is None:
            return TransientError(message, code=code)
        now = self._providers.clock.now()
        wait_ms = rate_limit_info(
            fault.status_code, fault.headers, fault.body, now=now
        ).wait
        # With a lane, the time of the next turn counts as well as the provider's
        # response.
        turn = refusal.retry_after if self._is_paced(provider) else None
        if wait_ms is None and (turn is None or not self._has_paid):
            # The wait is unknown: the error uses an attempt, so that retries end.
            return TransientError(message, code=code)
        wait = max((wait_ms or 0) / 1000, turn or 0.0)
        return Throttled(message, retry_after=wait, code=code, lane=refusal.lane)

    def _time(self, seconds: float | None) -> _Time:
        return _Time(self._providers.seconds if seconds is None else seconds)


def _observed(hook: Callable[[Correction], None], seen: Correction) -> None:
    try:
        hook(seen)
    except Exception as error:  # noqa: BLE001 - an observer must not fail the call
        log.error("on_correction raised", error_type=type(error).__name__)


def _may_be_passed_over(error: WorkError) -> bool:
    """Return whether the next provider may succeed."""
    codes = {trouble for trouble in Trouble if trouble.is_providers_own}
    return isinstance(error, TransientError) or error.problem_code in codes


def _whole(reply: Reply[Any], *, partial: bool = False) -> str:
    """Return the text of an answer; raise if it is truncated and must not be."""
    text = str(reply.content)
    if reply.is_truncated and not partial:
        raise AnswerTruncated(
            f"the answer of {reply.model} was cut off after {len(text)} characters by "
            "its limit of tokens: raise max_tokens, ask for less, or accept it with "
            "partial=True",
            text=text,
        )
    return text


def _soonest(errors: Sequence[WorkError]) -> WorkError:
    """Return the error with the shortest requested wait, otherwise a transient one."""
    waits = [
        error
        for error in errors
        if isinstance(error, Throttled) and error.retry_after is not None
    ]
    if waits:
        return min(waits, key=lambda error: error.retry_after or 0.0)
    passing = (error for error in errors if isinstance(error, TransientError))
    return next(passing, errors[0])


def _conversation(
    prompt: str | Sequence[Message], system: str | None
) -> tuple[Message, ...]:
    """Merge all system texts into one message: some servers accept only one."""
    messages = (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)
    if system is None:
        return messages
    if messages and messages[0].role == "system":
        system, messages = f"{messages[0].text}\n\n{system}", messages[1:]
    return (Message("system", system), *messages)


def _estimated(reply: Reply[Any], read: str) -> Tokens:
    """Estimate the tokens of a call whose provider did not count them."""
    written = reply.content if isinstance(reply.content, str) else ""
    return Tokens(estimate(read), estimate(written))


def _believable(tokens: Tokens) -> Tokens:
    """Limit implausible counts of a provider, which must not fail the job."""
    read, written, cached = (min(max(0, count), MOST_TOKENS) for count in tokens)
    return Tokens(read, written, min(cached, read))
