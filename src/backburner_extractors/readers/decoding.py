"""Decodes text files in common encodings."""

import codecs
from pathlib import Path
from typing import Final

from backburner_extractors.collector import Collector

BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
WIDEST: Final = 4
"""Maximum number of bytes of a character."""


def read_text(path: Path, collector: Collector) -> str:
    """Return the decoded content of a text file within the limit of characters."""
    return decode(read_bytes(path, collector))


def read_bytes(path: Path, collector: Collector) -> bytes:
    """Return the bytes of a file, at most as many as the limit of characters needs."""
    longest = WIDEST * collector.limits.max_text_chars
    with path.open("rb") as file:
        content = file.read(longest + 1)
    collector.expect_chars(-(-len(content) // WIDEST))
    return content


def decode(content: bytes, declared: str = "utf-8") -> str:
    """Decode by byte order mark, else as declared, else as Windows-1252."""
    for bom, encoding in BOMS:
        if content.startswith(bom):
            return content.decode(encoding, "replace")
    try:
        return content.decode(declared)
    except (UnicodeDecodeError, LookupError):
        return content.decode("cp1252", "replace")
