"""What an `sqs://` URL says, and what SQS calls a queue."""

import hashlib
import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from backburner.ports.broker import DEAD

VISIBILITY_SECONDS = 30
WAIT_SECONDS = 5
MOST_WAIT, MOST_VISIBILITY = 20, 43_200
"""What SQS allows, in seconds."""
OPTIONS = {"endpoint", "prefix", "visibility", "wait"}
SHORT = re.compile(r"[A-Za-z0-9_-]{1,30}")
LONGEST = 80
HASH = 20
FIT = re.compile(r"[A-Za-z0-9_-]+")
UNFIT = re.compile(r"[^A-Za-z0-9_-]")
MAPPED = re.compile(rf".*-[0-9a-f]{{{HASH}}}")


@dataclass(frozen=True, slots=True)
class Address:
    """What an `sqs://` URL says."""

    region: str
    endpoint: str | None = None
    prefix: str = ""
    visibility: int = VISIBILITY_SECONDS
    """For how many seconds what was received is kept from others."""
    wait: int = WAIT_SECONDS
    """How many seconds a question for messages waits for an answer."""
    key: str | None = None
    secret: str | None = None

    @classmethod
    def read(cls, url: str) -> Self:
        """Read `sqs://region?endpoint=…&prefix=…`; credentials may be before an @."""
        parts = urlsplit(url)
        told = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := told.keys() - OPTIONS:
            raise ValueError(f"there is no option {min(unknown)!r}")
        if not parts.hostname:
            raise ValueError("it names no region")
        if told.get("prefix") and not SHORT.fullmatch(told["prefix"]):
            raise ValueError("a prefix has up to 30 letters, digits, - and _")
        visibility = int(told.get("visibility", VISIBILITY_SECONDS))
        wait = int(told.get("wait", WAIT_SECONDS))
        if not (0 < wait <= MOST_WAIT and 0 < visibility <= MOST_VISIBILITY):
            raise ValueError("wait is 1 to 20 s, visibility 1 s to 12 h")
        return cls(
            region=parts.hostname,
            endpoint=told.get("endpoint"),
            prefix=told.get("prefix", ""),
            visibility=visibility,
            wait=wait,
            key=unquote(parts.username) if parts.username else None,
            secret=unquote(parts.password) if parts.password else None,
        )

    def name_of(self, queue: str) -> str:
        """
        Return what SQS calls a queue: its own name, where SQS allows it.

        What it does not allow is replaced, and a digest keeps apart what then looks
        alike. A name that looks as if it had one gets one, too.
        """
        longest = LONGEST - len(self.prefix) - len(DEAD)
        is_fit = FIT.fullmatch(queue) and not MAPPED.fullmatch(queue)
        if is_fit and len(queue) <= longest:
            return self.prefix + queue
        digest = hashlib.sha256(queue.encode()).hexdigest()[:HASH]
        readable = UNFIT.sub("-", queue)[: longest - HASH - 1]
        return f"{self.prefix}{readable}-{digest}"
