"""
Asking models: by lanes, within a time, down a chain of providers, into a shape.

An `Asker` does so for a job, or for whoever has none: it is the same code.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol, TypeVar, overload

from backburner.domain.ai import CORRECTION, Trouble
from backburner.domain.errors import (
    PermanentError,
    Throttled,
    TransientError,
    WorkError,
)
from backburner.domain.hint import hint
from backburner.domain.lane import lane_name
from backburner.domain.usage import MOST_TOKENS
from backburner.engine.lanes import Call
from backburner.engine.shapes import Shape, mistakes, shape_of
from backburner.ports.ai import (
    Chat,
    Fault,
    Hear,
    Media,
    Message,
    Models,
    Provider,
    Reply,
    Tokens,
    Vector,
)
from backburner.ports.clock import Clock
from backburner.ports.log import log

T = TypeVar("T")

SECONDS: Final = 60.0


class Called(NamedTuple):
    """One call that was answered, and what it took."""

    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    duration_ms: int


class Vectors(NamedTuple):
    """Texts as vectors; only those of one model can be compared."""

    model: str
    vectors: Sequence[Vector]


@dataclass(frozen=True, slots=True)
class Providers:
    """Who is asked, the first first."""

    chain: Sequence[Provider]
    clock: Clock
    seconds: float = SECONDS
    """How long an answer may take in all, unless the question says."""

    async def close(self) -> None:
        """Give up what is open."""
        for provider in self.chain:
            await provider.close()


class LaneOf(Protocol):
    """Gives the lane of a provider."""

    def __call__(self, provider: str, model: str, *, credential: str | None) -> Call:
        """Return a call to be made by it."""
        ...


class Book(Protocol):
    """Takes note of what was used."""

    def __call__(
        self,
        model: str,
        *,
        input_tokens: int,
        output_tokens: int,
        provider: str | None,
        cached_tokens: int,
    ) -> None:
        """Book one call."""
        ...


class _Work(NamedTuple):
    """What is wanted of whichever provider does it."""

    model: Callable[[Models], str]
    do: Callable[[Provider, str], Awaitable[Reply[Any]]]
    wanted: str | None = None
    """A model by name: the first provider's."""
    speech: "_Speech | None" = None
    """Its text on the way to readers."""


class _Speech:
    """Passes text on, and knows whether there was any."""

    def __init__(self, emit: Hear | None) -> None:
        self._emit = emit
        self.call: Call | None = None
        """By which it comes."""
        self.has_begun = False
        """Whether somebody has read of it already."""

    async def hear(self, text: str) -> None:
        if not text or self._emit is None:
            return
        if not self.has_begun and self.call is not None:
            # It is served: who waits for that need not wait for the rest.
            self.call.hear(HTTPStatus.OK)
        self.has_begun = True
        await self._emit(text)


class Asker:
    """
    Asks models on behalf of one job or request.

    What goes wrong is raised as the engine's own errors, with `AI_…` codes.
    """

    def __init__(
        self,
        providers: Providers,
        *,
        lane: LaneOf | None = None,
        book: Book | None = None,
        emit: Hear | None = None,
    ) -> None:
        """Without a `lane` nothing paces the calls, without `book` nobody pays."""
        self._providers = providers
        self._lane = lane
        self._book = book
        self._emit = emit
        self._calls: list[Called] = []

    @property
    def calls(self) -> Sequence[Called]:
        """The calls that were answered so far, in order; the provider told of each."""
        return tuple(self._calls)

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
        stream: bool = False,
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
        stream: bool = False,
    ) -> Any:
        """
        Ask a model; with `into`, return its answer as that type.

        An answer of another shape is shown to the model with what is wrong, once. The
        `seconds` are for all of it. With `stream` the text is emitted as it comes.
        """
        if stream and into is not None:
            raise ValueError("an answer that may be corrected cannot be streamed")
        limit = self._limit(seconds)
        messages = _conversation(prompt, system)
        chat = Chat(messages, "", temperature, max_tokens)
        if into is None:
            return await self._complete(chat, model, limit, stream=stream)
        return await self._structured(chat, model, limit, shape_of(into))

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        seconds: float | None = None,
    ) -> Vectors:
        """Return a vector for each text, by the first provider: others' differ."""
        work = _Work(
            lambda models: models.embedding, lambda p, m: p.embed(texts, m), model
        )
        chain = self._providers.chain[:1]
        reply = await self._answered(work, self._limit(seconds), chain)
        return Vectors(reply.model, reply.content)

    async def transcribe(
        self,
        audio: bytes,
        mime_type: str,
        *,
        model: str | None = None,
        seconds: float | None = None,
    ) -> str:
        """Write down what is said in a recording."""
        media = Media(audio, mime_type)
        work = _Work(
            lambda models: models.transcription,
            lambda p, m: p.transcribe(media, m),
            model,
        )
        return str((await self._answered(work, self._limit(seconds))).content)

    async def describe(
        self,
        image: bytes,
        mime_type: str,
        prompt: str = "Describe this picture.",
        *,
        model: str | None = None,
        seconds: float | None = None,
    ) -> str:
        """Say what is in a picture."""
        media = Media(image, mime_type)
        work = _Work(
            lambda models: models.vision,
            lambda p, m: p.describe(media, prompt, m),
            model,
        )
        return str((await self._answered(work, self._limit(seconds))).content)

    async def _structured(
        self, chat: Chat, model: str | None, limit: float, shape: Shape
    ) -> Any:
        messages = _conversation(chat.messages, shape.wish)
        chat = replace(chat, messages=messages, schema=shape.schema)
        text = await self._complete(chat, model, limit)
        try:
            return shape.read(text)
        except ValueError as error:
            why = mistakes(error)
        log.warning("answer unusable, asking once more", code=Trouble.UNUSABLE_ANSWER)
        correction = f"{CORRECTION}{why}\nAnswer once more, with the JSON only."
        shown = (Message("assistant", text), Message("user", correction))
        again = replace(chat, messages=(*chat.messages, *shown))
        text = await self._complete(again, model, limit)
        try:
            return shape.read(text)
        except ValueError as error:
            raise PermanentError(
                f"the model's answer cannot be used: {mistakes(error)}",
                code=Trouble.UNUSABLE_ANSWER,
            ) from None

    async def _complete(
        self, chat: Chat, model: str | None, limit: float, *, stream: bool = False
    ) -> str:
        speech = _Speech(self._emit) if stream else None
        hear = None if speech is None else speech.hear

        def do(provider: Provider, name: str) -> Awaitable[Reply[str]]:
            return provider.chat(replace(chat, model=name), hear)

        work = _Work(lambda models: models.chat, do, model, speech)
        return str((await self._answered(work, limit)).content)

    async def _answered(
        self, work: _Work, limit: float, chain: Sequence[Provider] | None = None
    ) -> Reply[Any]:
        """Return the first answer; a provider that has none is passed over."""
        chain = self._providers.chain if chain is None else chain
        errors: list[TransientError] = []
        for n, provider in enumerate(chain):
            # Whoever hangs must leave the next ones some of the time.
            now = asyncio.get_running_loop().time()
            until = now + (limit - now) / (len(chain) - n)
            try:
                return await self._by(provider, work, until, is_first=n == 0)
            except TransientError as error:
                errors.append(error)
                if work.speech is not None and work.speech.has_begun:
                    break
                if provider is not chain[-1]:
                    code = error.problem_code
                    log.warning(
                        "provider passed over", provider=provider.name, code=code
                    )
        raise _soonest(errors)

    async def _by(
        self, provider: Provider, work: _Work, until: float, *, is_first: bool
    ) -> Reply[Any]:
        wanted = work.wanted if is_first else None
        model = wanted or work.model(provider.models)
        try:
            async with self._leave(provider, model) as call:
                if work.speech is not None:
                    work.speech.call = call
                reply = await self._timed(provider, work.do(provider, model), until)
                call.hear(HTTPStatus.OK, reply.headers)
                return reply
        except Fault as fault:
            raise self._judged(provider, fault) from fault
        except Throttled as refusal:
            cause = refusal.__cause__  # none if the lane is full or parked
            if isinstance(cause, Fault):
                raise self._judged(provider, cause, refusal) from cause
            raise

    def _leave(self, provider: Provider, model: str) -> Call:
        if self._lane is None or not provider.is_paced:
            return Call(None, lane_name(provider.name, model, provider.credential))
        return self._lane(provider.name, model, credential=provider.credential)

    def _is_paced(self, provider: Provider) -> bool:
        return self._lane is not None and provider.is_paced

    async def _timed(
        self, provider: Provider, answer: Awaitable[Reply[Any]], until: float
    ) -> Reply[Any]:
        loop = asyncio.get_running_loop()
        begun, reply = loop.time(), None
        try:
            async with asyncio.timeout_at(until):
                reply = await answer
        except TimeoutError:
            raise Fault(Trouble.TIMEOUT, "it took too long") from None
        except Fault as fault:
            reply = fault.reply
            raise
        finally:
            if reply is not None:
                self._note(provider, reply, loop.time() - begun)
        return reply

    def _note(self, provider: Provider, reply: Reply[Any], seconds: float) -> None:
        tokens = _believable(reply.tokens or Tokens())
        took = round(seconds * 1000)
        self._calls.append(Called(provider.name, reply.model, *tokens, took))
        if self._book is not None and reply.tokens is not None:
            self._book(
                reply.model,
                input_tokens=tokens.input,
                output_tokens=tokens.output,
                provider=provider.name,
                cached_tokens=tokens.cached,
            )

    def _judged(
        self, provider: Provider, fault: Fault, refusal: Throttled | None = None
    ) -> WorkError:
        """Say what a fault means to the engine."""
        message, code = f"{provider.name}: {fault}", fault.trouble
        if not code.is_passing:
            return PermanentError(message, code=code)
        if refusal is None or fault.status_code is None:
            return TransientError(message, code=code)
        now = self._providers.clock.now()
        told = hint(fault.status_code, fault.headers, fault.body, now=now).wait
        if told is None:
            # Nobody knows when: it counts as an attempt, so that it does not go on.
            return TransientError(message, code=code)
        # Where it has a lane, that says when its turn is; else what was told holds.
        wait = told / 1000
        if self._is_paced(provider) and refusal.retry_after is not None:
            wait = max(wait, refusal.retry_after)
        return Throttled(message, retry_after=wait, code=code, lane=refusal.lane)

    def _limit(self, seconds: float | None) -> float:
        span = self._providers.seconds if seconds is None else seconds
        return asyncio.get_running_loop().time() + span


def _soonest(errors: Sequence[TransientError]) -> TransientError:
    """Tell the shortest wait that a provider asked for, else the first's trouble."""
    waits = [
        error
        for error in errors
        if isinstance(error, Throttled) and error.retry_after is not None
    ]
    return min(waits, key=lambda error: error.retry_after or 0.0, default=errors[0])


def _conversation(
    prompt: str | Sequence[Message], system: str | None
) -> tuple[Message, ...]:
    """Put what the system says in one message: some servers take no second one."""
    told = (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)
    if system is None:
        return told
    if told and told[0].role == "system":
        system, told = f"{told[0].text}\n\n{system}", told[1:]
    return (Message("system", system), *told)


def _believable(tokens: Tokens) -> Tokens:
    """Keep a provider's odd counts from costing the job its answer."""
    read, written, cached = (min(max(0, count), MOST_TOKENS) for count in tokens)
    return Tokens(read, written, min(cached, read))
