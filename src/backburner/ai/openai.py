"""
OpenAI, and every server that speaks as it does.

The client neither retries nor limits the whole time: the engine does both.
"""

import base64
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx2
import openai

from backburner.domain.ai import Trouble, by_status
from backburner.domain.errors import ConfigurationError
from backburner.ports.ai import (
    Access,
    Chat,
    Fault,
    Hear,
    Media,
    Reply,
    Tokens,
    Vector,
)
from backburner.ports.clock import Clock

HOST: Final = "api.openai.com"
NAMES: Final = {
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "api.together.xyz": "together",
    "openrouter.ai": "openrouter",
}
"""Whose prices and limits they are, by the host that is asked."""
LONGEST_REASON: Final = 300
FILTERED: Final = "content_filter"


class OpenAI:
    """A `Provider` over the chat completions that so many servers speak."""

    is_paced = True

    def __init__(self, access: Access) -> None:
        if not access.key:
            raise ConfigurationError(
                "OPENAI_API_KEY is not set, and BACKBURNER_AI names openai"
            )
        host = urlsplit(access.base_url).hostname or HOST
        self.name = NAMES.get(host, "openai")
        self.models = access.models
        self.credential: str | None = access.key
        # Its newer models refuse the old name, other servers do not know the new one.
        self._most = "max_completion_tokens" if host == HOST else "max_tokens"
        self._client = openai.AsyncOpenAI(
            api_key=access.key,
            base_url=access.base_url or f"https://{HOST}/v1",
            max_retries=0,
            timeout=None,
        )

    @classmethod
    def from_access(cls, access: Access, clock: Clock) -> Self:
        """Make one of the settings."""
        del clock
        return cls(access)

    async def chat(self, chat: Chat, hear: Hear | None = None) -> Reply[str]:
        wanted = self._wanted(chat)
        if hear is not None:
            return await self._streamed(wanted, hear)
        with self._faults():
            raw = await self._client.chat.completions.with_raw_response.create(**wanted)
            answer = _Answer(raw.http_response)
        return answer.reply()

    async def embed(self, texts: Sequence[str], model: str) -> Reply[Sequence[Vector]]:
        with self._faults():
            raw = await self._client.embeddings.with_raw_response.create(
                model=model, input=list(texts), encoding_format="float"
            )
            answer = _Answer(raw.http_response)
            vectors = [_vector(item) for item in answer.items("data")]
        if len(vectors) != len(texts):
            raise Fault(Trouble.BAD_ANSWER, "it sent another number of vectors")
        return Reply(vectors, answer.model or model, answer.tokens, answer.headers)

    async def transcribe(self, audio: Media, model: str) -> Reply[str]:
        with self._faults():
            raw = await self._client.audio.transcriptions.with_raw_response.create(
                model=model,
                file=(audio.name, audio.content, audio.mime_type),
                response_format="json",
            )
            answer = _Answer(raw.http_response)
            text = answer.body["text"]
        if not isinstance(text, str):
            raise Fault(Trouble.BAD_ANSWER, "there is no text in its answer")
        return Reply(text, model, answer.tokens, answer.headers)

    async def describe(self, image: Media, prompt: str, model: str) -> Reply[str]:
        data = base64.b64encode(image.content).decode()
        content = [
            {"type": "text", "text": prompt},
            {
                "type": "image_url",
                "image_url": {"url": f"data:{image.mime_type};base64,{data}"},
            },
        ]
        wanted: Any = {
            "model": model,
            "messages": [{"role": "user", "content": content}],
        }
        with self._faults():
            raw = await self._client.chat.completions.with_raw_response.create(**wanted)
            answer = _Answer(raw.http_response)
        return answer.reply()

    async def close(self) -> None:
        await self._client.close()

    def _wanted(self, chat: Chat) -> Any:
        wanted: dict[str, Any] = {
            "model": chat.model,
            "messages": [{"role": m.role, "content": m.text} for m in chat.messages],
        }
        if chat.temperature is not None:
            wanted["temperature"] = chat.temperature
        if chat.max_tokens is not None:
            wanted[self._most] = chat.max_tokens
        if chat.schema is not None:
            # Not the schema itself: of those who speak so, few take that.
            wanted["response_format"] = {"type": "json_object"}
        return wanted

    async def _streamed(self, wanted: Any, hear: Hear) -> Reply[str]:
        heard = _Heard(wanted["model"])
        with self._faults():
            async with self._chunks(wanted) as (headers, chunks):
                async for chunk in chunks:
                    piece = heard.take(chunk)
                    if piece:
                        await hear(piece)
        return heard.reply(headers)

    @asynccontextmanager
    async def _chunks(
        self, wanted: Any
    ) -> AsyncIterator[tuple[Mapping[str, str], AsyncIterator[Any]]]:
        streamed: Any = {"stream": True, "stream_options": {"include_usage": True}}
        completions = self._client.chat.completions.with_streaming_response
        async with completions.create(**wanted, **streamed) as raw:
            yield dict(raw.headers), await raw.parse()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn whatever the client raises into a fault."""
        try:
            yield
        except openai.APIStatusError as error:
            raise _by_answer(error, self.credential or "") from error
        except openai.APITimeoutError as error:
            raise Fault(Trouble.TIMEOUT, "it took too long") from error
        except openai.APIConnectionError as error:
            raise Fault(Trouble.UNAVAILABLE, "it cannot be reached") from error
        except httpx2.HTTPError as error:
            raise Fault(Trouble.UNAVAILABLE, "the connection broke") from error
        except (openai.OpenAIError, ValueError, TypeError, LookupError) as error:
            # A broken body escapes the client's own classes.
            raise Fault(Trouble.BAD_ANSWER, "its answer cannot be read") from error


class _Answer:
    """A whole answer, of which nothing is taken on trust."""

    def __init__(self, response: httpx2.Response) -> None:
        body = json.loads(response.content)
        if not isinstance(body, dict):
            raise ValueError("no object")  # noqa: TRY004 - as other broken bodies
        self.body: dict[str, Any] = body
        self.headers = dict(response.headers)
        self.tokens = _tokens(body.get("usage"))
        self.model = _text(body.get("model"))

    def items(self, name: str) -> list[Any]:
        """Return a list of the body."""
        return list(self.body[name])

    def reply(self) -> Reply[str]:
        """Return what the model said."""
        with _unread():
            choice = self.items("choices")[0]
            message = choice["message"]
            text, refusal = message.get("content"), message.get("refusal")
        reply = Reply(_text(text), self.model, self.tokens, self.headers)
        if refusal or choice.get("finish_reason") == FILTERED:
            raise Fault(Trouble.REFUSED, "the model will not answer that", reply=reply)
        if not isinstance(text, str):
            raise Fault(Trouble.BAD_ANSWER, "there is no text in it", reply=reply)
        return reply


class _Heard:
    """An answer that comes in pieces."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._pieces: list[str] = []
        self._tokens: Tokens | None = None
        self._is_refused = self._is_over = False

    def take(self, chunk: Any) -> str:
        """Take a piece in; return its text."""
        self._model = _text(getattr(chunk, "model", None)) or self._model
        used = getattr(chunk, "usage", None)
        if used is not None:
            self._tokens = _tokens(used.model_dump())
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self._is_over = self._is_over or choice.finish_reason is not None
        if choice.finish_reason == FILTERED or getattr(choice.delta, "refusal", None):
            self._is_refused = True
        piece = _text(choice.delta.content)
        self._pieces.append(piece)
        return piece

    def reply(self, headers: Mapping[str, str]) -> Reply[str]:
        """Return the whole of it."""
        reply = Reply("".join(self._pieces), self._model, self._tokens, headers)
        if self._is_refused:
            raise Fault(Trouble.REFUSED, "the model will not answer that", reply=reply)
        if not self._is_over:
            raise Fault(Trouble.BAD_ANSWER, "its answer has no end", reply=reply)
        return reply


@contextmanager
def _unread() -> Iterator[None]:
    try:
        yield
    except (LookupError, TypeError, AttributeError) as error:
        raise Fault(Trouble.BAD_ANSWER, "its answer has no such shape") from error


def _by_answer(error: openai.APIStatusError, key: str) -> Fault:
    said = f"{error.code or ''} {error.message}"
    trouble = by_status(error.status_code, said)
    told = f"it answered {error.status_code}"
    if trouble in {Trouble.REJECTED, Trouble.TOO_LONG}:
        reason = said.replace(key, "…") if key else said
        told = f"{told}: {reason.strip()[:LONGEST_REASON]}"
    return Fault(
        trouble,
        told,
        status=error.status_code,
        headers=dict(error.response.headers),
        body=error.body,
    )


def _tokens(used: Any) -> Tokens | None:
    """Read what was used; chat and the other calls name it differently."""
    if not isinstance(used, Mapping):
        return None
    details = used.get("prompt_tokens_details") or used.get("input_token_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else 0
    counts = [
        used.get("prompt_tokens", used.get("input_tokens")),
        used.get("completion_tokens", used.get("output_tokens")),
        cached or used.get("prompt_cache_hit_tokens"),
    ]
    if counts[0] is None:
        return None
    return Tokens(*(n if isinstance(n, int) else 0 for n in counts))


def _vector(item: Any) -> Vector:
    return [float(number) for number in item["embedding"]]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
