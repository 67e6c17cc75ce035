"""The jobs of `chat`: read attachments and write the reply."""

import asyncio
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel

from backburner import (
    Called,
    Context,
    PermanentError,
    RetryPolicy,
    Throttled,
    Transaction,
    View,
    WorkError,
    capability,
    estimate_of,
)
from backburner.web import log
from backburner_apps.chat import memories, personalities
from backburner_apps.chat.memories import Embedded
from backburner_apps.chat.personalities import Personality
from backburner_apps.chat.prompt import (
    FORGOTTEN,
    Part,
    conversation,
    exchange,
    is_forget,
    question,
)
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.chat.shapes import (
    MAX_BYTES,
    Attachment,
    GenerateRequest,
    Reply,
    Usage,
)
from backburner_apps.chat.tables import requests

QUEUE: Final = "ai-jobs"
RETRY: Final = RetryPolicy.listed(timedelta(seconds=2), timedelta(seconds=4))
LONGEST: Final = timedelta(minutes=21)
"""Timeout for a run that does not end after `BACKBURNER_CHAT_LOCK_SECONDS`."""
LOCK_EXCEEDED: Final = "LOCK_EXCEEDED"
UNREADABLE: Final = "ATTACHMENT_UNREADABLE"
FETCH_SECONDS: Final = 30.0
DESCRIBE: Final = (
    "Describe this picture for somebody who cannot see it. Quote any text in it."
)
EMBEDDED: Final = 8_000
"""Maximum length of the text to embed, in characters: a limit of models."""
EXPECTED: Final = 500
"""Expected number of tokens of a reply, for budgets."""
LOADED, RETRIEVED, ASKING, ANSWERED, STORED = 10, 30, 50, 90, 100
"""Progress in percent after each stage."""


class Fetch(BaseModel):
    """An attachment to read."""

    attachment: Attachment
    hosts: list[str] = []
    """The only hosts to fetch it from; empty allows any public host."""


class Asked(BaseModel):
    """A reply to write."""

    request: GenerateRequest
    parts: list[Part] = []


@capability("audio-transcription", queue=QUEUE, timeout=LONGEST, retry=RETRY)
async def transcribe(ctx: Context, value: Fetch) -> str:
    """Return the transcript of a recording."""
    async with locked(ctx):
        content = await read(ctx, value)
        return await ctx.transcribe(content, value.attachment.content_type)


@capability("image-description", queue=QUEUE, timeout=LONGEST, retry=RETRY)
async def describe(ctx: Context, value: Fetch) -> str:
    """Return a description of an image."""
    async with locked(ctx):
        content = await read(ctx, value)
        content_type = value.attachment.content_type
        return await ctx.describe(content, content_type, prompt=DESCRIBE)


@capability(
    "llm-generation",
    queue=QUEUE,
    timeout=LONGEST,
    retry=RETRY,
    tokens=estimate_of(output=EXPECTED),
)
async def generate(ctx: Context, value: Asked) -> Reply:
    """Write the reply, using memories and attachments."""
    async with locked(ctx):
        asked, owner = value.request, ctx.job.owner

        def load(view: View) -> Personality:
            return personalities.find(view, owner.tenant, asked.personality_id)

        personality = await ctx.read(load)
        await ctx.progress(LOADED, STORED)
        if is_forget(asked.user_message):
            return _forget(ctx, personality)
        text = question(asked.user_message, value.parts, ctx.needs)
        # A stored step: after an interruption, the next run builds the same prompt,
        # whose answer is stored, even if memories have changed meanwhile.
        similar = await ctx.step("memories", _remembered, ctx, personality, text)
        await ctx.progress(RETRIEVED, STORED)
        remembered = similar.contents
        messages = conversation(personality.system_prompt, remembered, asked, text)
        await ctx.progress(ASKING, STORED)
        begun = len(ctx.ai.calls)
        content = await ctx.ask(
            messages,
            model=personality.model,
            temperature=personality.temperature,
            stream=True,
            partial=True,
        )
        await ctx.progress(ANSWERED, STORED)
        calls = [*similar.calls, *ctx.ai.calls[begun:]]
        reply = _reply(personality, content, calls)
        _store(ctx, personality, reply, exchange(text, content), similar.embedded)
        await ctx.progress(STORED, STORED)
        return reply


@capability("chat.embed", queue=QUEUE, timeout=timedelta(seconds=60))
async def embed(ctx: Context, text: str) -> Embedded:
    """Return the vector of a text; run within a request, without a job."""
    vectors = await ctx.embed([text])
    return Embedded.of(vectors.model, vectors.vectors[0])


@asynccontextmanager
async def locked(ctx: Context) -> AsyncIterator[None]:
    """Fail a run that takes longer than it may, for good; log why it is retried."""
    loop = asyncio.get_running_loop()
    begun, seconds = loop.time(), ctx.settings_of(ChatSettings).lock_seconds
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            _log_retry(ctx, error)
            raise
        took = round((loop.time() - begun) * 1000)
        log.warning("Stuck job detected", jobId=ctx.job.id, durationMs=took)
        raise PermanentError("Job exceeded lock duration", code=LOCK_EXCEEDED) from None
    except Exception as error:
        _log_retry(ctx, error)
        raise


def _log_retry(ctx: Context, error: Exception) -> None:
    attempt, most = ctx.job.attempt, ctx.job.max_attempts
    if attempt >= most or (isinstance(error, WorkError) and not error.retryable):
        return
    asked = error.retry_after if isinstance(error, Throttled) else None
    delay = RETRY.delay(attempt, 0.0) if asked is None else timedelta(seconds=asked)
    log.warning(
        "Retrying after error",
        jobId=ctx.job.id,
        attempt=attempt,
        maxAttempts=most,
        delayMs=delay // timedelta(milliseconds=1),
        error_type=type(error).__name__,
    )


async def read(ctx: Context, value: Fetch) -> bytes:
    """Return an attachment's content."""
    attachment = value.attachment
    if (attachment.size or 0) > MAX_BYTES:
        raise _unreadable(f"it has more than {MAX_BYTES // 1024**2} MB")
    if attachment.data_url is not None:
        return _data(attachment.data_url)
    response = await ctx.http.get(
        attachment.url or "",
        hosts=value.hosts or None,
        limit=MAX_BYTES,
        seconds=FETCH_SECONDS,
    )
    response.raise_for_status()
    if not response.body:
        raise _unreadable("it is empty")
    return response.body


def _data(url: str) -> bytes:
    head, comma, body = url.partition(",")
    if not comma:
        raise _unreadable("its data URL has no content")
    if not head.lower().endswith(";base64"):
        content = unquote_to_bytes(body)
    else:
        try:
            content = b64decode(unquote_to_bytes(body), validate=True)
        except (NotBase64, ValueError):
            raise _unreadable("its data URL is not valid base64") from None
    if not content:
        raise _unreadable("it is empty")
    if len(content) > MAX_BYTES:
        raise _unreadable(f"it has more than {MAX_BYTES // 1024**2} MB")
    return content


def _unreadable(why: str) -> PermanentError:
    return PermanentError(why, code=UNREADABLE)


class Remembered(NamedTuple):
    """A message's vector and the memories that are similar to it."""

    embedded: Embedded
    contents: list[str]
    calls: list[Called]
    """The model calls that embedded the message."""


async def _remembered(ctx: Context, personality: Personality, text: str) -> Remembered:
    """Return the vector of a message, and the memories that are similar to it."""
    begun = len(ctx.ai.calls)
    # This function is a stored step, so the call need not be stored separately.
    vectors = await ctx.embed([text[:EMBEDDED]], remember=False)
    embedded = Embedded.of(vectors.model, vectors.vectors[0])
    most = ctx.settings_of(ChatSettings).memories
    owner = ctx.job.owner
    similar = await memories.similar(ctx.read, personality, owner, embedded, most)
    contents = [memory.content for memory in similar]
    return Remembered(embedded, contents, [*ctx.ai.calls[begun:]])


def _reply(personality: Personality, content: str, calls: Sequence[Called]) -> Reply:
    read, written = (
        sum(call.input_tokens for call in calls),
        sum(call.output_tokens for call in calls),
    )
    return Reply(
        content=content,
        model=calls[-1].model,
        personality_name=personality.name,
        usage=Usage(
            input_tokens=read, output_tokens=written, total_tokens=read + written
        ),
    )


def _store(
    ctx: Context,
    personality: Personality,
    reply: Reply,
    content: str,
    embedded: Embedded,
) -> None:
    """Store the reply and the memory in the transaction that settles the job."""
    job = ctx.job

    def store(tx: Transaction) -> None:
        _keep(tx, job.id, reply)
        if not personalities.lock_shared(tx, job.owner.tenant, personality):
            return  # it was deleted, with its memories, while the model wrote
        # A request from before the user's `/forget` stores no memory.
        if not memories.is_forgotten(tx, job.owner, personality.id, job.created_at):
            memories.remember(tx, job.id, job.owner, personality.id, content, embedded)

    ctx.at_settlement(store)


def _forget(ctx: Context, personality: Personality) -> Reply:
    reply = Reply(
        content=FORGOTTEN, model="", personality_name=personality.name, usage=Usage()
    )
    job = ctx.job

    def store(tx: Transaction) -> None:
        memories.forget(tx, job.owner, personality.id)
        _keep(tx, job.id, reply)

    ctx.at_settlement(store)
    return reply


def _keep(tx: Transaction, job_id: str, reply: Reply) -> None:
    change = requests.update().where(requests.c.job_id == job_id)
    tx.connection.execute(change.values(reply=reply.model_dump(by_alias=True)))
