"""
Splits the pages of a document into chunks that an embedding model can read. Pure.

The same pages give the same chunks in every process: a chunk is known by the hash of
its text, so the size is measured by `tokens`, which needs no model.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from semantic_text_splitter import TextSplitter

MAX_TOKENS: Final = 256
OVERLAP: Final = 32
RESERVED: Final = 12
"""Reserve: two tokens that the model adds, and ten for errors of the estimate."""
SHORT_WORD: Final = 5
PIECE: Final = 3
CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Ranges of the letters of Chinese, Japanese and Korean, for a regular expression."""

_PART = re.compile(rf"[{CJK}]|[a-zA-Z]+|[0-9]+|\S")
_LATIN_END: Final = "\u0250"


class PageLike(Protocol):
    """A page as the extractors return it."""

    @property
    def number(self) -> int:
        """Its number in the document, from 1."""

    @property
    def text(self) -> str:
        """Its text."""

    @property
    def kind(self) -> str:
        """`page`, `sheet`, `slide`, or `section` where there are no pages."""


class Chunk(NamedTuple):
    """A part of a document: the unit of embedding and search."""

    number: int
    """Its place in the document, from 0."""
    page: int | None
    """The page that it is on; `None` if the document has no pages."""
    text: str
    content_hash: str
    """The SHA-256 of the text, as 64 hexadecimal digits."""


def chunk_pages(
    pages: Sequence[PageLike], *, max_tokens: int = MAX_TOKENS, overlap: int = OVERLAP
) -> list[Chunk]:
    """Split pages into chunks; no chunk spans two pages."""
    splitter = TextSplitter.from_callback(tokens, max_tokens - RESERVED, overlap)
    parts = (
        (None if page.kind == "section" else page.number, text)
        for page in pages
        for text in splitter.chunks(storable(page.text))
    )
    return [
        Chunk(number, page, text, content_hash(text))
        for number, (page, text) in enumerate(parts)
    ]


def content_hash(text: str) -> str:
    """Return the hash that identifies a text, so that it is embedded only once."""
    return hashlib.sha256(text.encode()).hexdigest()


def storable(text: str) -> str:
    """Return a text without characters that databases cannot store."""
    return text.replace("\0", "").encode(errors="ignore").decode()


def tokens(text: str) -> int:
    """
    Return about how many tokens a text has for MiniLM, rather too many than too few.

    Its tokenizer splits long and foreign words: English prose has about 15 % fewer
    tokens than this, German about as many.
    """
    return sum(map(_weight, _PART.findall(text)))


def _weight(part: str) -> int:
    size = len(part)
    if part[0].isdecimal():
        return size - size // 3
    if size > SHORT_WORD:
        return -(-size // PIECE)
    is_accented = not part.isascii() and part.isalpha() and part < _LATIN_END
    return 2 if is_accented else 1
