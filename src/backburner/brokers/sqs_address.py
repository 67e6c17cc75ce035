"""Parses `sqs://` URLs and maps queue names to names that SQS allows."""

import hashlib
import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from backburner.ports.broker import DEAD

VISIBILITY_SECONDS = 30
WAIT_SECONDS = 5
MOST_WAIT, MOST_VISIBILITY = 20, 43_200
"""The maxima that SQS allows, in seconds."""
OPTIONS = {"endpoint", "prefix", "visibility", "wait"}
SHORT = re.compile(r"[A-Za-z0-9_-]{1,30}")
LONGEST = 80
HASH = 20
FIT = re.compile(r"[A-Za-z0-9_-]+")
UNFIT = re.compile(r"[^A-Za-z0-9_-]")
MAPPED = re.compile(rf".*-[0-9a-f]{{{HASH}}}")


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of an `sqs://` URL."""

    region: str
    endpoint: str | None = None
    prefix: str = ""
    visibility: int = VISIBILITY_SECONDS
    """For how many seconds received messages are hidden from other consumers."""
    wait: int = WAIT_SECONDS
    """For how many seconds a request for messages waits."""
    key: str | None = None
    secret: str | None = None

    @classmethod
    def read(cls, url: str) -> Self:
        """Parse `sqs://[key:secret@]region?endpoint=…&prefix=…`."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := options.keys() - OPTIONS:
            raise ValueError(f"unknown option {min(unknown)!r}")
        if not parts.hostname:
            raise ValueError("it names no region")
        if options.get("prefix") and not SHORT.fullmatch(options["prefix"]):
            raise ValueError("a prefix must have up to 30 letters, digits, - and _")
        visibility = int(options.get("visibility", VISIBILITY_SECONDS))
        wait = int(options.get("wait", WAIT_SECONDS))
        if not (0 < wait <= MOST_WAIT and 0 < visibility <= MOST_VISIBILITY):
            raise ValueError("wait must be 1 to 20 s, and visibility 1 s to 12 h")
        return cls(
            region=parts.hostname,
            endpoint=options.get("endpoint"),
            prefix=options.get("prefix", ""),
            visibility=visibility,
            wait=wait,
            key=unquote(parts.username) if parts.username else None,
            secret=unquote(parts.password) if parts.password else None,
        )

    def name_of(self, queue: str) -> str:
        """
        Return the name of a queue at SQS: its own name if SQS allows it.

        Otherwise forbidden characters are replaced, and a digest keeps different names
        apart. A name that already looks like such a result gets a digest, too.
        """
        longest = LONGEST - len(self.prefix) - len(DEAD)
        is_fit = FIT.fullmatch(queue) and not MAPPED.fullmatch(queue)
        if is_fit and len(queue) <= longest:
            return self.prefix + queue
        digest = hashlib.sha256(queue.encode()).hexdigest()[:HASH]
        readable = UNFIT.sub("-", queue)[: longest - HASH - 1]
        return f"{self.prefix}{readable}-{digest}"
