"""
The queue `task-parsing`: extracts tasks from a message, or stores it unchanged.

If a job fails permanently, loses its workers or expires, its completion stores the
message and notifies the user. Logs never contain a user's text.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import orjson
from pydantic import BaseModel
from structlog.contextvars import bind_contextvars

from backburner import (
    ClaimLost,
    Context,
    JobEnd,
    JobState,
    Owner,
    PermanentError,
    RetryPolicy,
    Throttled,
    Transaction,
    TransientError,
    WorkError,
    capability,
    estimate_of,
)
from backburner.web import log
from backburner_apps.inbox import book, metrics, texts
from backburner_apps.inbox.effects import AI, FALLBACK, QUEUE, Applied, Effects
from backburner_apps.inbox.parsing import (
    NO_AUDIO,
    SYSTEM,
    Heard,
    ModelParser,
    ParseContext,
    ParseError,
    written_at,
)
from backburner_apps.inbox.settings import InboxSettings
from backburner_apps.inbox.shapes import (
    PAYLOAD_INVALID,
    Message,
    Parsed,
    Voice,
    Wire,
    message_of,
)
from backburner_apps.inbox.telegram import VOICE_FAILED, Bot

CREATE_FAILED: Final = "TASK_CREATE_FAILED"
DUPLICATE: Final = "QUEUE_IDEMPOTENCY_DUPLICATE"
RETRY: Final = RetryPolicy.listed(timedelta(seconds=1), timedelta(seconds=2))
PATIENCE: Final = timedelta(minutes=10)
"""Total time that a job may wait for rate limits without using up an attempt."""
CLOSED: Final = frozenset({book.SUCCESS, book.FALLBACK})
_estimate = estimate_of(
    system=SYSTEM + orjson.dumps(Parsed.model_json_schema()).decode(), output=200
)


class Result(Wire):
    """The outcome of a message."""

    status: str
    source: str | None = None
    task_count: int = 0
    code: str | None = None


class Ended(BaseModel):
    """The end of a job of `task-parsing`, successful or not."""

    message: dict[str, Any]
    job: JobEnd


def expected(payload: dict[str, Any]) -> int:
    """Return how many tokens a message is expected to use."""
    return _estimate(str(payload.get("text", "")))


@capability(
    "inbox.parse-message",
    queue=QUEUE,
    retry=RETRY,
    patience=PATIENCE,
    # An attempt that has paid for one call waits up to 10 minutes for the next.
    timeout=timedelta(minutes=15),
    tokens=expected,
)
async def parse_message(ctx: Context, value: dict[str, Any]) -> Result:
    """Extract tasks from a message, or store it unchanged if the model cannot."""
    return await Parsing(ctx, message_of(value)).run()


class Parsing:
    """One attempt to process one message."""

    def __init__(self, ctx: Context, message: Message) -> None:
        self._ctx = ctx
        self._message = message
        self._settings = ctx.settings_of(InboxSettings)
        owner = Owner(ctx.job.owner.tenant, message.user_id)
        self._effects = Effects(self._settings, owner, message)
        self._parser = ModelParser(ctx, self._settings.ai_seconds)
        bind_contextvars(correlationId=message.correlation_id)

    async def run(self) -> Result:
        """Parse the message and store its effect."""
        record = await self._ctx.read(
            lambda view: book.find_record(view, self._effects.key)
        )
        if record is not None and record.status in CLOSED:
            return self._duplicate()
        try:
            heard = await self._heard()
        except ParseError as error:
            return await self._judge(error)
        except WorkError as error:
            return await self._not_fetched(error)
        applied = await self._store(
            lambda tx: self._effects.parsed(tx, heard.tasks), AI
        )
        if not applied.is_new:
            return self._duplicate()
        self._count("success")
        log.info(
            "Task parsed successfully",
            taskCount=applied.tasks,
            source=AI,
            **self._where(),
        )
        return Result(status=book.SUCCESS, source=AI, task_count=applied.tasks)

    async def _heard(self) -> Heard:
        job, message = self._ctx.job, self._message
        written = written_at(job.created_at, self._settings.timezone)
        context = ParseContext(written, job.attempt)
        if message.voice is None:
            tasks = await self._parser.parse_text(message.text, context)
            return Heard(message.text, tasks)
        audio = await self._fetched(message.voice)
        return await self._parser.parse_audio(audio, message.voice.mime_type, context)

    async def _fetched(self, voice: Voice) -> bytes:
        if self._ctx.ai.first("transcription") is None:
            # No provider could transcribe it, so it is not downloaded.
            raise PermanentError("no provider transcribes recordings", code=NO_AUDIO)
        if not self._settings.token:
            raise PermanentError(
                "a voice message cannot be downloaded without TELEGRAM_BOT_TOKEN",
                code=VOICE_FAILED,
            )
        return await Bot(self._ctx.http, self._settings).download(voice.file_id)

    async def _judge(self, error: ParseError) -> Result:
        """Raise an error that is to be retried; store the fallback for others."""
        if error.is_providers and error.outcome != "unusable":
            log.error("AI provider error", errorCode=error.code, **self._where())
        match error.outcome:
            case "wait":
                self._count("error", when=error.is_providers)
                raise _throttled(error) from error
            case "retry" if not self._is_last:
                self._count("error")
                raise TransientError(str(error), code=error.code) from error
            case "disabled":
                raise PermanentError(str(error), code=error.code) from error
            case "unusable":
                return await self._fall_back(error.code, error, texts.FALLBACK)
            case _:
                return await self._fall_back(error.code, error, texts.ERROR)

    async def _not_fetched(self, error: WorkError) -> Result:
        """Retry the download of a voice message, or store the fallback."""
        waits = isinstance(error, Throttled) and error.retry_after is not None
        is_passing = isinstance(error, TransientError) and not self._is_last
        if waits or is_passing or error.problem_code == NO_AUDIO:
            raise error
        return await self._fall_back(error.problem_code, None, texts.ERROR)

    async def _fall_back(
        self, code: str, error: ParseError | None, phrase: texts.Phrase
    ) -> Result:
        transcript = "" if error is None else error.transcript
        text = self._message.text or transcript
        applied = await self._store(
            lambda tx: self._effects.fallback(tx, text, phrase), FALLBACK
        )
        if not applied.is_new:
            return self._duplicate()
        self._count("fallback")
        log.warning("Fallback used", reasonCode=code, source=FALLBACK, **self._where())
        return Result(status=book.FALLBACK, source=FALLBACK, task_count=1, code=code)

    async def _store(
        self, body: Callable[[Transaction], Applied], source: str
    ) -> Applied:
        """Commit the effect; raise a transient error if it cannot be stored."""
        try:
            applied = await self._ctx.transact(body)
        except ClaimLost:
            raise
        except Exception as error:
            kind = type(error).__name__
            log.error(
                "Task creation failed",
                errorCode=CREATE_FAILED,
                error_type=kind,
                attempt=self._ctx.job.attempt,
            )
            raise TransientError(
                f"the tasks could not be stored: {kind}", code=CREATE_FAILED
            ) from error
        self._effects.count(applied, source)
        return applied

    def _duplicate(self) -> Result:
        metrics.hits.labels(QUEUE).inc()
        log.info("Message was processed before", code=DUPLICATE, queue=QUEUE)
        return Result(status="DUPLICATE", code=DUPLICATE)

    def _count(self, result: str, *, when: bool = True) -> None:
        if when:
            metrics.parses.labels(result, self._parser.provider).inc()

    @property
    def _is_last(self) -> bool:
        return self._ctx.job.attempt >= self._ctx.job.max_attempts

    def _where(self) -> dict[str, Any]:
        return {
            "provider": self._parser.provider,
            "model": self._parser.model,
            "attempt": self._ctx.job.attempt,
        }


def _throttled(error: ParseError) -> Throttled:
    cause = error.cause
    wait = cause.retry_after if isinstance(cause, Throttled) else None
    lane = cause.lane if isinstance(cause, Throttled) else None
    return Throttled(str(error), retry_after=wait, code=error.code, lane=lane)


@capability(
    "inbox.message-ended",
    queue="inbox",
    retry=RetryPolicy(max_attempts=10, cap=timedelta(minutes=1)),
)
async def message_ended(ctx: Context, value: Ended) -> str:
    """
    Handle a message whose job did not succeed.

    If the job was lost or expired, store the message as a task. If its tasks could not
    be stored, or no provider transcribes voice messages, mark the message as a dead
    letter, which may be retried.
    """
    end = value.job
    if end.state is JobState.SUCCEEDED:
        return "nothing to do"
    code = "CANCELLED" if end.error is None else end.error.code
    if code == PAYLOAD_INVALID:
        return code
    message = message_of(value.message)
    bind_contextvars(correlationId=message.correlation_id)
    owner = Owner(ctx.job.owner.tenant, message.user_id)
    effects = Effects(ctx.settings_of(InboxSettings), owner, message)
    if end.state is JobState.CANCELLED or code in {CREATE_FAILED, NO_AUDIO}:
        phrase = texts.VOICE_OFF if code == NO_AUDIO else texts.ERROR
        await ctx.transact(lambda tx: effects.failed(tx, code, phrase))
        return code
    applied = await ctx.transact(
        lambda tx: effects.fallback(tx, message.text, texts.ERROR)
    )
    effects.count(applied, FALLBACK)
    if applied.is_new:
        provider = (ctx.ai.first() or ("none",))[0]
        metrics.parses.labels("fallback", provider).inc()
        log.warning("Fallback used", reasonCode=code, source=FALLBACK)
    return code
