"""Model calls of a handler: limited by lanes, recorded, and stored as steps."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar, overload

from backburner.domain.costs.usage import NOTHING, Spent, Usage, usage
from backburner.domain.errors import PermanentError
from backburner.domain.lanes.lane import lane_name
from backburner.engine.models.asking import Asker, Vectors
from backburner.engine.models.lanes import Call
from backburner.engine.models.shapes import shape_of
from backburner.engine.models.spending import billed
from backburner.engine.run.base_context import BaseContext
from backburner.engine.run.drafts import Answered, StepDraft
from backburner.engine.run.steps import request_of
from backburner.ports.ai import Message

T = TypeVar("T")

NOT_REQUESTED = frozenset({"seconds", "on_correction", "stream"})
"""Options of a model call that do not change the request."""


class ModelContext(BaseContext):
    """The part of a context that calls models."""

    __slots__ = ()

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
        Record the usage of a model call, as its provider counted it.

        It stays recorded whatever the outcome of the attempt. `cached_tokens` are part
        of the input tokens.
        """
        call = usage(model, input_tokens, output_tokens, provider, cached_tokens)
        self.spending.add(call)

    def _book(self, call: Usage, *, is_estimate: bool) -> None:
        """Record a call of the asker; see `Book`."""
        self.spending.add(call, is_estimate=is_estimate)

    @property
    def usage(self) -> tuple[Usage, ...]:
        """The calls recorded with `used`, in order."""
        usage_log = None if self.spent is None else self.spent.usage_log
        return () if usage_log is None else usage_log.calls

    async def used_before(self) -> Spent:
        """Sum up the usage of earlier attempts since the last retry by hand."""
        usage_sink = self._services.usage_sink
        return (
            NOTHING
            if usage_sink is None
            else await usage_sink.spent_before(self._claim)
        )

    async def used_by(self, step: str) -> Spent:
        """Sum up the usage of a step in `needs`, over all of its runs."""
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
        Wait for a permit to call a provider: `async with ctx.lane(…) as call:`.

        All workers share the limits of a lane. If the wait would be long, the job is
        put back without using an attempt and its slot becomes free; if this attempt has
        already paid for a call, it waits here instead. Only a digest of the
        `credential` is stored; a `label` is stored as it is. `tokens` is the expected
        usage of the call, by default that of the job.
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
        """The lane of the job's application, used by all of its model calls."""
        providers = self._services.providers
        lanes = {} if providers is None else providers.lanes
        return lanes.get(self._claim.capability)

    @property
    def ai(self) -> Asker:
        """Calls models for this job, with lanes and usage; `calls` lists the calls."""
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
        Ask a model, optionally with an answer of the type `into`; see `Asker.ask`.

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
        """Return a vector for each text; takes the options of `Asker.embed`."""
        called = partial(self.ai.embed, texts, **options)
        if not remember:
            return await called()
        request = request_of(texts=texts, model=options.get("model"))
        answer, _ = await self._remembered("embed", request, called, Vectors)
        return Vectors(*answer)

    async def transcribe(
        self, audio: bytes, mime_type: str, *, remember: bool = True, **options: Any
    ) -> str:
        """Transcribe a recording; takes the options of `Asker.transcribe`."""
        called = partial(self.ai.transcribe, audio, mime_type, **options)
        return await self._media("transcribe", audio, mime_type, called, remember)

    async def describe(
        self, image: bytes, mime_type: str, *args: Any, **options: Any
    ) -> str:
        """Describe an image; takes the options of `Asker.describe`."""
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
        """Return a model's answer and whether an earlier run of the job stored it."""
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
