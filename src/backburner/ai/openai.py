"""
OpenAI, and every server that speaks as it does.

The client neither retries nor limits the whole time: the engine does both.
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
"""What a chat calls a kind of recording, if not as its media type does."""
FILTERED: Final = "content_filter"
CUT: Final = "length"
"""Why an answer ended, if it reached its limit of tokens."""
_CODE = re.compile(r"[A-Za-z0-9_.\-]{1,60}")
_WORDS: Final = {
    Trouble.RATE_LIMITED: "it accepts no more calls for now",
    Trouble.UNAVAILABLE: "it has a fault of its own",
    Trouble.NO_QUOTA: "the account has no credit left: "
    "check its plan and billing at the provider",
    Trouble.TOO_LONG: "the prompt is longer than the model can read",
    Trouble.REJECTED: "it does not accept this request",
}


class OpenAI:
    """A `Provider` over the chat completions that so many servers speak."""

    is_paced = True

    def __init__(self, access: Access, preset: Preset = OPENAI) -> None:
        if preset.needs_key and not access.key:
            raise ConfigurationError(
                f"{preset.key_variable} is not set, and the provider {preset.name!r} "
                "is chosen"
            )
        url = access.base_url or preset.base_url
        self.name = preset.name
        self.models = access.models
        self.credential: str | None = access.key or None
        self._preset = preset
        # Other servers at OpenAI's variable do not know its new name for the limit.
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
            raise Fault(Trouble.BAD_ANSWER, "there is no text in its answer")
        return Reply(text, model, answer.tokens, answer.headers)

    async def describe(self, image: Media, prompt: str, model: str) -> Reply[str]:
        data = base64.b64encode(image.content).decode()
        url = {"url": f"data:{image.mime_type};base64,{data}"}
        return await self._shown(model, prompt, {"type": "image_url", "image_url": url})

    async def _shown(self, model: str, prompt: str, media: Any) -> Reply[str]:
        """Ask a question about something that is no text."""
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
        streamed: Any = {"stream": True}
        if self._preset.counts_streams:
            streamed["stream_options"] = {"include_usage": True}
        completions = self._client.chat.completions.with_streaming_response
        async with completions.create(**wanted, **streamed) as raw:
            yield dict(raw.headers), await raw.parse()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn whatever the client raises into a fault."""
        try:
            yield
        except openai.APIStatusError as error:
            raise _by_answer(error, self._preset.key_variable) from error
        except openai.APITimeoutError as error:
            raise Fault(Trouble.TIMEOUT, "it exceeded its time limit") from error
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
        is_cut = choice.get("finish_reason") == CUT
        reply = Reply(
            _text(text), self.model, self.tokens, self.headers, is_truncated=is_cut
        )
        if refusal or choice.get("finish_reason") == FILTERED:
            raise Fault(Trouble.REFUSED, "the model will not answer that", reply=reply)
        if not isinstance(text, str) and not is_cut:
            raise Fault(Trouble.BAD_ANSWER, "there is no text in it", reply=reply)
        return reply


class _Heard:
    """An answer that comes in pieces."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._pieces: list[str] = []
        self._tokens: Tokens | None = None
        self._is_refused = self._is_over = self._is_cut = False

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
        self._is_cut = self._is_cut or choice.finish_reason == CUT
        if choice.finish_reason == FILTERED or getattr(choice.delta, "refusal", None):
            self._is_refused = True
        piece = _text(choice.delta.content)
        self._pieces.append(piece)
        return piece

    def reply(self, headers: Mapping[str, str]) -> Reply[str]:
        """Return the whole of it."""
        text = "".join(self._pieces)
        reply = Reply(
            text, self._model, self._tokens, headers, is_truncated=self._is_cut
        )
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


def _recording(audio: Media) -> dict[str, Any]:
    """Return a recording as a part of a chat."""
    kind = audio.mime_type.partition("/")[2].partition(";")[0]
    data = base64.b64encode(audio.content).decode()
    told = {"data": data, "format": FORMATS.get(kind, kind)}
    return {"type": "input_audio", "input_audio": told}


def _by_answer(error: openai.APIStatusError, key: str) -> Fault:
    said = f"{error.code or ''} {error.type or ''} {error.message}"
    trouble = by_status(error.status_code, said)
    return Fault(
        trouble,
        f"{_words(error, trouble, key)} ({_codes(error)})",
        status=error.status_code,
        headers=dict(error.response.headers),
        body=error.body,
    )


def _words(error: openai.APIStatusError, trouble: Trouble, key: str) -> str:
    """Say what happened and what to do: the provider's text may quote the prompt."""
    if error.status_code == HTTPStatus.FORBIDDEN:
        return (
            f"the key in {key} has no right to do this: "
            "check its project and permissions at the provider"
        )
    if trouble is Trouble.UNAUTHORIZED:
        return f"the key was not accepted: check {key}"
    if error.code == "model_not_found":
        return "it knows no such model: check BACKBURNER_AI_MODEL"
    return _WORDS[trouble]


def _codes(error: openai.APIStatusError) -> str:
    """Return the status and the codes that the provider sent for programs."""
    told = (error.code or error.type, error.param)
    named = [text for text in told if isinstance(text, str) and _CODE.fullmatch(text)]
    return " ".join([str(error.status_code), *named])


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
