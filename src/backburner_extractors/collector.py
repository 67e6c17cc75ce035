"""Collects the pages and images of a file within the limits."""

import re
from typing import Final

from backburner_extractors.errors import ExtractionError
from backburner_extractors.limits import Limits
from backburner_extractors.model import Extracted, ImageRef, Kind, Ocr, Page

NOT_TEXT: Final = {
    code: None for code in range(32) if chr(code) not in "\t\n"
} | dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
SPACES_AT_END: Final = re.compile(r"[ \t]+(?=\n|\Z)")
EMPTY_LINES: Final = re.compile(r"\n{3,}")
LONGEST_NAME: Final = 200
ENGLISH: Final = "eng"
"""A language, as tesseract calls it; several are joined by a plus sign."""


def clean(text: str) -> str:
    """Remove control characters, spaces at line ends and repeated empty lines."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(NOT_TEXT)
    text = EMPTY_LINES.sub("\n\n", SPACES_AT_END.sub("", text))
    return text.strip("\n")


class Collector:
    """The pages and images of one file; raises as soon as a limit is exceeded."""

    def __init__(self, limits: Limits, languages: str = ENGLISH) -> None:
        self.limits = limits
        self.languages = languages
        self.pages: list[Page] = []
        self.images: list[ImageRef] = []
        self.ocr: Ocr = "none"
        self._chars = 0

    def expect_pages(self, count: int) -> None:
        """Refuse a file with too many pages before any of them is read."""
        if count > self.limits.max_pages:
            raise ExtractionError(
                "TOO_MANY_PAGES",
                f"The file has {count:,} pages; at most {self.limits.max_pages:,}"
                " are read. Split the file.",
            )

    def expect_chars(self, count: int) -> None:
        """Refuse a text that is too long before it is added."""
        if self._chars + count > self.limits.max_text_chars:
            raise ExtractionError(
                "TEXT_TOO_LARGE",
                f"The file has more than {self.limits.max_text_chars:,} characters"
                " of text. Split the file.",
            )

    def add_page(self, text: str, kind: Kind, name: str = "") -> None:
        """Add the text of the next page."""
        self.expect_pages(len(self.pages) + 1)
        text = clean(text)
        self.expect_chars(len(text))
        self._chars += len(text)
        name = " ".join(clean(name).split())[:LONGEST_NAME]
        self.pages.append(Page(len(self.pages) + 1, text, kind, name))

    def add_image(self, page: int | None, width: int = 0, height: int = 0) -> None:
        """Add an image, unless the limit of images is reached."""
        if len(self.images) < self.limits.max_images:
            self.images.append(ImageRef(page, width, height))

    def result(self, content_type: str) -> Extracted:
        """Return the collected pages and images."""
        return Extracted(
            content_type, tuple(self.pages), tuple(self.images), ocr=self.ocr
        )
