"""
The messages between parent and child process: lines of JSON.

They are JSON and not pickle, so that a compromised parser cannot run code in the
parent.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from backburner_extractors.errors import CODES, ExtractionError
from backburner_extractors.limits import Limits
from backburner_extractors.model import Extracted, ImageRef, Kind, Ocr, Page
from backburner_extractors.readers import MODULES

CHAR: Final = 4
"""Maximum number of bytes of a character in JSON."""
LINE: Final = 1_200
"""Maximum number of bytes of a line without its text."""
PIECE: Final = 1 << 15
"""Maximum number of characters of text in a line."""
IMAGE: Final = 64
KINDS: Final = get_args(Kind)
OCR: Final = get_args(Ocr)


class Request(NamedTuple):
    """A request to the child process."""

    parent: int
    path: Path
    suffix: str
    limits: Limits
    languages: str


def encode_request(request: Request) -> bytes:
    """Write a request for the child's standard input."""
    parent, path, suffix, limits, languages = request
    fields = [parent, str(path), suffix, asdict(limits), languages]
    return json.dumps(fields).encode()


def decode_request(line: bytes) -> Request:
    """Decode a request that `encode_request` wrote."""
    parent, path, suffix, limits, languages = json.loads(line)
    return Request(parent, Path(path), suffix, Limits(**limits), languages)


def longest_answer(limits: Limits) -> int:
    """Return the maximum size of an answer within the limits, in bytes."""
    lines = limits.max_pages + 1 + limits.max_text_chars // PIECE + limits.max_pages
    return CHAR * limits.max_text_chars + LINE * lines + IMAGE * limits.max_images


def encode_result(result: Extracted) -> Iterator[bytes]:
    """Yield the lines of a result: pages with pieces of their text, then the rest."""
    for page in result.pages:
        yield _line(["page", page.number, page.kind, page.name])
        for start in range(0, len(page.text), PIECE):
            yield _line(["text", page.text[start : start + PIECE]])
    images = [[image.page, image.width, image.height] for image in result.images]
    yield _line(["end", result.content_type, images, result.ocr])


def encode_error(error: ExtractionError) -> bytes:
    """Return an error as the only line of an answer."""
    return _line(["error", error.code, error.message])


def _line(fields: list[Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def decode_answer(lines: Iterable[bytes]) -> Extracted | None:
    """Return the result, raise its error, or return None for an incomplete answer."""
    answer = Answer()
    try:
        for line in lines:
            kind, *fields = json.loads(line)
            if kind == "end":
                return _result(answer.finished(), *fields)
            answer.add(kind, *fields)
    except (TypeError, ValueError) as error:
        raise ExtractionError(
            "EXTRACTOR_CRASHED", "The process that read the file gave a wrong answer."
        ) from error
    return None


class Answer:
    """Collects the pages of an answer, with at most two copies of a long text."""

    def __init__(self) -> None:
        self._pages: list[Page] = []
        self._head: tuple[int, Kind, str] | None = None
        self._pieces: list[str] = []

    def add(self, kind: str, *fields: Any) -> None:
        """Add the next line; raise the error if it contains one."""
        if kind == "text":
            (piece,) = fields
            self._pieces.append(str(piece))
        elif kind == "page":
            self._end_page()
            self._head = _page_head(*fields)
        else:
            raise _error(*fields)

    def finished(self) -> tuple[Page, ...]:
        """Return all pages."""
        self._end_page()
        return tuple(self._pages)

    def _end_page(self) -> None:
        if self._head is not None:
            number, kind, name = self._head
            self._pages.append(Page(number, "".join(self._pieces), kind, name))
        self._pieces.clear()


def _page_head(number: Any, kind: Any, name: Any) -> tuple[int, Kind, str]:
    if kind not in KINDS:
        raise ValueError(kind)
    return int(number), kind, str(name)


def _result(
    pages: tuple[Page, ...], content_type: Any, images: Any, ocr: Any
) -> Extracted:
    if content_type not in MODULES or ocr not in OCR:
        raise ValueError(content_type, ocr)
    refs = (ImageRef(page, int(width), int(height)) for page, width, height in images)
    return Extracted(content_type, pages, tuple(refs), ocr)


def _error(code: Any, message: Any) -> ExtractionError:
    if code not in CODES:
        raise ValueError(code)
    return ExtractionError(code, str(message))
