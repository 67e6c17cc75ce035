"""Events that applications publish: limits and visibility. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from backburner.domain.errors import FieldError, InvalidInput
from backburner.domain.events.event import RESET
from backburner.domain.jobs.job import Instant, Visibility

MAX_TOPIC: Final = 200
MAX_TYPE: Final = 100
MAX_DATA: Final = 65_536
"""The maximum size of an event's data as JSON, in bytes; use blobs for more."""

TOPIC_PATTERN: Final = rf"^[!-~]{{1,{MAX_TOPIC}}}$"
"""Visible ASCII characters, as a topic is a part of URLs."""
_TOPIC = re.compile(TOPIC_PATTERN[1:-1])
_TYPE = re.compile(rf"[A-Za-z][A-Za-z0-9_.:-]{{0,{MAX_TYPE - 1}}}")
ENGINE_KINDS: Final = ("job", "flow", "batch", "queue", "lane")
"""First parts of event types that are reserved for the engine."""


class Publication(NamedTuple):
    """A validated event of an application, ready to be stored."""

    topic: str
    type: str
    data: str
    to: Visibility
    at: Instant


def publication(
    topic: str, type_: str, data: Mapping[str, Any], *, to: Visibility, at: Instant
) -> Publication:
    """Return an event in its stored form; raise `InvalidInput` if it is invalid."""
    if not _TOPIC.fullmatch(topic):
        raise _invalid("topic", f"must be 1 to {MAX_TOPIC} visible ASCII characters")
    if not _TYPE.fullmatch(type_):
        raise _invalid(
            "type",
            f"must be 1 to {MAX_TYPE} letters, digits, '_', '.', ':' or '-', "
            "a letter first",
        )
    if type_ == RESET or type_.partition(".")[0] in ENGINE_KINDS:
        raise _invalid("type", f"{type_!r} is reserved for the engine's own events")
    try:
        text = orjson.dumps(data)
    except TypeError as error:
        raise _invalid("data", f"cannot be written as JSON: {error}") from error
    if not text.startswith(b"{"):
        raise _invalid("data", "must be a mapping")
    if len(text) > MAX_DATA:
        raise _invalid(
            "data", f"has {len(text)} bytes as JSON, at most {MAX_DATA} are allowed"
        )
    return Publication(topic, type_, text.decode(), to, at)


def _invalid(field: str, message: str) -> InvalidInput:
    fields = [FieldError(field, message)]
    return InvalidInput(f"the event cannot be published: {field} {message}", fields)
