"""
A provider without a model or network: equal prompts get equal answers.

It produces plausible results. A sentence about something to do becomes a task if the
schema is that of a task, and other schemas are filled with sample values. Questions
with numbered sources are answered by quotations, and texts that share words have
similar vectors. Media are not read, and the answer says so. It fails on demand: see
`script.py`.
"""

import asyncio
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Self
from zoneinfo import ZoneInfo

import orjson

from backburner.ai.citing import quoted
from backburner.ai.script import Mishap, Script, without_marks
from backburner.ai.sentences import task_of, tasks_of
from backburner.ai.shaping import (
    is_task,
    is_task_list,
    sample,
    shaped,
    shaped_list,
)
from backburner.domain.ai import CORRECTION, Trouble, by_status
from backburner.ports.ai import (
    Access,
    Chat,
    Fault,
    Hear,
    Media,
    Message,
    Models,
    Reply,
    Tokens,
    Vector,
)
from backburner.ports.clock import Clock

NAME: Final = "mock"
MODELS: Final = Models(NAME, NAME, NAME, NAME)
DIMENSIONS: Final = 256
CHARACTERS_A_TOKEN: Final = 4
DRIP_SECONDS: Final = 0.05
SHOWN: Final = 200
MOST_ZONES: Final = 5
MISFIT: Final = '{"tasks": "none", "title": 0}'
"""JSON that matches no schema of a task."""
NONSENSE: Final = "Certainly! I would rather talk about the weather {than this."

_UNUSABLE: Final = {"nonsense": NONSENSE, "misfit": MISFIT}

_NOW = re.compile(
    r"\b(?:now|today)\b[^\n]{0,40}?"
    r"(\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?)",
    re.IGNORECASE,
)
_ZONE = re.compile(r"\b[A-Z]\w+/[A-Z][\w/+-]+")
_TAGGED = re.compile(r"<(\w+)>\s*(.*?)\s*</\1>", re.DOTALL)
_WORD = re.compile(r"\w+")


class Mock:
    """A `Provider` that answers by rules."""

    name = NAME
    credential: str | None = None
    is_paced = False

    def __init__(
        self, clock: Clock, models: Models = MODELS, script: Iterable[str] = ()
    ) -> None:
        """Create a mock; `script` lists how the first calls fail, one entry each."""
        self.models = models
        self._clock = clock
        self._script = Script(script)

    @classmethod
    def from_access(cls, access: Access, clock: Clock) -> Self:
        """Create a mock; it needs no key and has its own model names."""
        del access
        return cls(clock)

    async def chat(self, chat: Chat, hear: Hear | None = None) -> Reply[str]:
        prompt, tries = _asked(chat.messages)
        mishap = self._script.next(prompt)
        read = _tokens("".join(message.text for message in chat.messages))
        await _befall(mishap, chat.model, read)
        kind, _, once = mishap.kind.partition("-")
        unusable = None if once == "once" and tries else _UNUSABLE.get(kind)
        text = self._answer(chat, prompt) if unusable is None else unusable
        is_cut = mishap.kind == "truncated"
        text = text[: len(text) // 2] if is_cut else text
        await _say(text, hear, drips=mishap.kind == "drip")
        used = Tokens(read, _tokens(text))
        return Reply(text, chat.model, used, is_truncated=is_cut)

    async def embed(self, texts: Sequence[str], model: str) -> Reply[Sequence[Vector]]:
        read = sum(map(_tokens, texts))
        await _befall(self._script.next(texts[0] if texts else ""), model, read)
        vectors = [_vector(without_marks(text)) for text in texts]
        return Reply(vectors, model, Tokens(read))

    async def transcribe(self, audio: Media, model: str) -> Reply[str]:
        await _befall(self._script.next(""), model, 0)
        text = _placeholder("transcription", "recording", audio)
        return Reply(text, model, Tokens(0, _tokens(text)))

    async def describe(self, image: Media, prompt: str, model: str) -> Reply[str]:
        read = _tokens(prompt)
        await _befall(self._script.next(prompt), model, read)
        text = _placeholder("description", "picture", image)
        return Reply(text, model, Tokens(read, _tokens(text)))

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _answer(self, chat: Chat, prompt: str) -> str:
        prompt = without_marks(prompt)
        tagged = _TAGGED.findall(prompt)
        text = tagged[-1][1] if tagged else prompt.strip()
        if chat.schema is None:
            return quoted(prompt) or f"Mock answer to: {text}"
        if is_task(chat.schema):
            now = self._now(chat.messages)
            value: Any = shaped(task_of(text, now), chat.schema, now)
        elif is_task_list(chat.schema):
            now = self._now(chat.messages)
            value = shaped_list(tasks_of(text, now), chat.schema, now)
        else:
            value = sample(chat.schema, text[:SHOWN])
        return orjson.dumps(value).decode()

    def _now(self, messages: Sequence[Message]) -> datetime:
        """Return the time that the prompt names, otherwise the clock's."""
        for message in messages:
            found = _NOW.search(message.text)
            if found is not None:
                named = datetime.fromisoformat(found.group(1))
                zone = _zone(message.text)
                if named.tzinfo is None:
                    return named.replace(tzinfo=zone or UTC)
                return named if zone is None else named.astimezone(zone)
        return datetime.fromtimestamp(self._clock.now() / 1000, tz=UTC)


def _zone(text: str) -> ZoneInfo | None:
    """Return the time zone named in a text; an offset does not give summer time."""
    for name in _ZONE.findall(text)[:MOST_ZONES]:
        try:
            return ZoneInfo(name)
        except (ValueError, OSError, LookupError):
            continue
    return None


def _asked(messages: Sequence[Message]) -> tuple[str, int]:
    """Return the question, and how many answers to it were corrected."""
    turns = [message for message in messages if message.role != "system"]
    tries = 0
    while turns and turns[-1].text.startswith(CORRECTION):
        turns, tries = turns[:-2], tries + 1
    users = [message.text for message in turns if message.role == "user"]
    return (users[-1] if users else ""), tries


async def _befall(mishap: Mishap, model: str, read: int) -> None:
    """Simulate a failure that comes before the answer."""
    status = mishap.status
    if status is not None:
        headers = (
            {} if mishap.retry_after is None else {"retry-after": mishap.retry_after}
        )
        raise Fault(
            by_status(status), f"it answered {status}", status=status, headers=headers
        )
    match mishap.kind:
        case "hang":
            await asyncio.Event().wait()
        case "drop":
            raise Fault(Trouble.UNAVAILABLE, "the connection was lost")
        case "broken":
            raise Fault(Trouble.BAD_ANSWER, "its answer is not valid JSON")
        case "no-quota":
            raise Fault(Trouble.NO_QUOTA, "the account has no credit left")
        case "too-long":
            raise Fault(Trouble.TOO_LONG, "the prompt is too long for the model")
        case "refuse":
            empty: Reply[str] = Reply("", model, Tokens(read, 0))
            raise Fault(Trouble.REFUSED, "the model refused to answer", reply=empty)
        case _:
            return


async def _say(text: str, hear: Hear | None, *, drips: bool) -> None:
    pieces = re.findall(r"\s*\S+\s*", text) if hear or drips else []
    for piece in pieces:
        if drips:
            await asyncio.sleep(DRIP_SECONDS)  # noqa: TID251 - its purpose
        if hear is not None:
            await hear(piece)


def _placeholder(what: str, of: str, media: Media) -> str:
    digest = hashlib.sha256(media.content).hexdigest()[:12]
    return (
        f"[mock {what}: this {of} of {len(media.content)} bytes was not read, "
        f"{media.mime_type}, {digest}]"
    )


def _tokens(text: str) -> int:
    return math.ceil(len(text) / CHARACTERS_A_TOKEN)


def _vector(text: str) -> Vector:
    """Hash words and their trigrams, so that texts with common words are similar."""
    vector = [0.0] * DIMENSIONS
    for word in _WORD.findall(text.lower()):
        padded = f" {word} "
        grams = [padded, *(padded[n : n + 3] for n in range(len(padded) - 2))]
        for gram in grams:
            digest = hashlib.blake2b(gram.encode(), digest_size=4).digest()
            number = int.from_bytes(digest, "big")
            sign = 1.0 if number & 1 else -1.0
            vector[(number >> 1) % DIMENSIONS] += sign
    length = math.sqrt(sum(x * x for x in vector)) or 1.0
    return [x / length for x in vector]
