"""
Calls OpenAI, and other services with OpenAI's API.

The client neither retries nor limits the total time: the engine does both.
"""

import base64
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx2
import openai

from backburner.ai.presets import OPENAI, Preset
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
SPOKEN: Final = "Write down what is said in this recording, and nothing else."
FORMATS: Final = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav"}
"""Formats of recordings in chats, where they differ from the media type."""
FILTERED: Final = "content_filter"
CUT: Final = "length"
"""The finish reason of an answer that reached its token limit."""
_CODE = re.compile(r"[A-Za-z0-9_.\-]{1,60}")
_WORDS: Final = {
    Trouble.RATE_LIMITED: "it accepts no more calls for now",
    Trouble.UNAVAILABLE: "it reported an internal error",
    Trouble.NO_QUOTA: "the account has no credit left: "
    "check its plan and billing at the provider",
    Trouble.TOO_LONG: "the prompt is longer than the model can read",
    Trouble.REJECTED: "it does not accept this request",
}


class OpenAI:
    """A `Provider` for the chat completions API of OpenAI and compatible services."""

    is_paced = True

    def __init__(self, access: Access, preset: Preset = OPENAI) -> None:
        if preset.needs_key and not access.key:
            raise ConfigurationError(
                f"{preset.key_variable} is not set, but the provider {preset.name!r} "
                "needs it: set it, or select another provider"
            )
        url = access.base_url or preset.base_url
        self.name = preset.name
        self.models = access.models
        self.credential: str | None = access.key or None
        self._preset = preset
        # Other services behind OPENAI_BASE_URL do not know the new name of the limit.
        is_other = preset is OPENAI and urlsplit(url).hostname != HOST
        self._most = "max_tokens" if is_other else preset.limit
        self._client = openai.AsyncOpenAI(
            api_key=access.key or "none",
            base_url=url,
            max_retries=0,
            timeout=None,
        )

    @classmethod
    def from_access(cls, access: Access, clock: Clock) -> Self:
        """Create a client from the settings."""
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
            raise Fault(Trouble.BAD_ANSWER, "it sent a wrong number of vectors")
        return Reply(vectors, answer.model or model, answer.tokens, answer.headers)

    async def transcribe(self, audio: Media, model: str) -> Reply[str]:
        if self._preset.hears_by_chat:
            return await self._shown(model, SPOKEN, _recording(audio))
        with self._faults():
            raw = await self._client.audio.transcriptions.with_raw_response.create(
                model=model,
                file=(audio.name, audio.content, audio.mime_type),
                response_format="json",
            )
            answer = _Answer(raw.http_response)
            text = answer.body["text"]
        if not isinstance(text, str):
            raise Fault(Trouble.BAD_ANSWER, "its answer contains no text")
        return Reply(text, model, answer.tokens, answer.headers)

    async def describe(self, image: Media, prompt: str, model: str) -> Reply[str]:
        data = base64.b64encode(image.content).decode()
        url = {"url": f"data:{image.mime_type};base64,{data}"}
        return await self._shown(model, prompt, {"type": "image_url", "image_url": url})

    async def _shown(self, model: str, prompt: str, media: Any) -> Reply[str]:
        """Ask a question about an image or a recording."""
        content = [{"type": "text", "text": prompt}, media]
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
        if chat.schema is not None and self._preset.takes_json_mode:
            # Not the schema itself: few compatible services accept one.
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
        streamed: Any = {"stream": True}
        if self._preset.counts_streams:
            streamed["stream_options"] = {"include_usage": True}
        completions = self._client.chat.completions.with_streaming_response
        async with completions.create(**wanted, **streamed) as raw:
            yield dict(raw.headers), await raw.parse()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Convert the client's exceptions to faults."""
        try:
            yield
        except openai.APIStatusError as error:
            raise _by_answer(error, self._preset.key_variable) from error
        except openai.APITimeoutError as error:
            raise Fault(Trouble.TIMEOUT, "the call exceeded its time limit") from error
        except openai.APIConnectionError as error:
            raise Fault(Trouble.UNAVAILABLE, "it cannot be reached") from error
        except httpx2.HTTPError as error:
            raise Fault(Trouble.UNAVAILABLE, "the connection was lost") from error
        except (openai.OpenAIError, ValueError, TypeError, LookupError) as error:
            # An invalid body raises other exceptions than the client's own.
            raise Fault(Trouble.BAD_ANSWER, "its answer cannot be read") from error


class _Answer:
    """A complete answer; none of its fields is trusted to exist."""

    def __init__(self, response: httpx2.Response) -> None:
        body = json.loads(response.content)
        if not isinstance(body, dict):
            raise ValueError("not an object")  # noqa: TRY004 - as other invalid bodies
        self.body: dict[str, Any] = body
        self.headers = dict(response.headers)
        self.tokens = _tokens(body.get("usage"))
        self.model = _text(body.get("model"))

    def items(self, name: str) -> list[Any]:
        """Return a list of the body."""
        return list(self.body[name])

    def reply(self) -> Reply[str]:
        """Return the model's reply."""
        with _unread():
            choice = self.items("choices")[0]
            message = choice["message"]
            text, refusal = message.get("content"), message.get("refusal")
        is_cut = choice.get("finish_reason") == CUT
        reply = Reply(
            _text(text), self.model, self.tokens, self.headers, is_truncated=is_cut
        )
        if refusal or choice.get("finish_reason") == FILTERED:
            raise Fault(Trouble.REFUSED, "the model refused to answer", reply=reply)
        if not isinstance(text, str) and not is_cut:
            raise Fault(Trouble.BAD_ANSWER, "its answer contains no text", reply=reply)
        return reply


class _Heard:
    """An answer that arrives in chunks."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._pieces: list[str] = []
        self._tokens: Tokens | None = None
        self._is_refused = self._is_over = self._is_cut = False

    def take(self, chunk: Any) -> str:
        """Add a chunk; return its text."""
        self._model = _text(getattr(chunk, "model", None)) or self._model
        used = getattr(chunk, "usage", None)
        if used is not None:
            self._tokens = _tokens(used.model_dump())
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self._is_over = self._is_over or choice.finish_reason is not None
        self._is_cut = self._is_cut or choice.finish_reason == CUT
        if choice.finish_reason == FILTERED or getattr(choice.delta, "refusal", None):
            self._is_refused = True
        piece = _text(choice.delta.content)
        self._pieces.append(piece)
        return piece

    def reply(self, headers: Mapping[str, str]) -> Reply[str]:
        """Return the complete reply."""
        text = "".join(self._pieces)
        reply = Reply(
            text, self._model, self._tokens, headers, is_truncated=self._is_cut
        )
        if self._is_refused:
            raise Fault(Trouble.REFUSED, "the model refused to answer", reply=reply)
        if not self._is_over:
            raise Fault(Trouble.BAD_ANSWER, "its answer was cut off", reply=reply)
        return reply


@contextmanager
def _unread() -> Iterator[None]:
    try:
        yield
    except (LookupError, TypeError, AttributeError) as error:
        raise Fault(Trouble.BAD_ANSWER, "its answer lacks expected fields") from error


def _recording(audio: Media) -> dict[str, Any]:
    """Return the part of a chat message that contains a recording."""
    kind = audio.mime_type.partition("/")[2].partition(";")[0]
    data = base64.b64encode(audio.content).decode()
    content = {"data": data, "format": FORMATS.get(kind, kind)}
    return {"type": "input_audio", "input_audio": content}


def _by_answer(error: openai.APIStatusError, key: str) -> Fault:
    detail = f"{error.code or ''} {error.type or ''} {error.message}"
    trouble = by_status(error.status_code, detail)
    return Fault(
        trouble,
        f"{_words(error, trouble, key)} ({_codes(error)})",
        status=error.status_code,
        headers=dict(error.response.headers),
        body=error.body,
    )


def _words(error: openai.APIStatusError, trouble: Trouble, key: str) -> str:
    """Describe a failure, without the provider's message: it may quote the prompt."""
    if error.status_code == HTTPStatus.FORBIDDEN:
        return (
            f"the key in {key} lacks permission for this call: "
            "check its project and permissions at the provider"
        )
    if trouble is Trouble.UNAUTHORIZED:
        return f"the key was not accepted: check {key}"
    if error.code == "model_not_found":
        return "it has no such model: check BACKBURNER_AI_MODEL"
    return _WORDS[trouble]


def _codes(error: openai.APIStatusError) -> str:
    """Return the status and the machine-readable codes of the provider."""
    codes = (error.code or error.type, error.param)
    named = [text for text in codes if isinstance(text, str) and _CODE.fullmatch(text)]
    return " ".join([str(error.status_code), *named])


def _tokens(used: Any) -> Tokens | None:
    """Parse the usage; its fields have other names in chats than in other calls."""
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
