"""The result of an extraction."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["page", "sheet", "slide", "section"]
Ocr = Literal["none", "used", "unavailable"]


@dataclass(frozen=True, slots=True)
class Page:
    """
    The text of a page, sheet or slide, or of a section where a file has no pages.

    `name` is the name of a sheet or the title of an HTML file.
    """

    number: int
    text: str
    kind: Kind
    name: str = ""


@dataclass(frozen=True, slots=True)
class ImageRef:
    """An image in a document: its page, and its size in pixels where it is known."""

    page: int | None
    width: int = 0
    height: int = 0


@dataclass(frozen=True, slots=True)
class Extracted:
    """
    The text of a file with its structure.

    `ocr` is "used" if a text was recognised in images, and "unavailable" if pages
    have no text because tesseract is not installed.
    """

    content_type: str
    pages: tuple[Page, ...]
    images: tuple[ImageRef, ...] = ()
    ocr: Ocr = "none"

    @property
    def text(self) -> str:
        """The text of all pages, separated by empty lines."""
        return "\n\n".join(page.text for page in self.pages if page.text)

    @property
    def image_pages(self) -> tuple[int, ...]:
        """The numbers of the pages with images, in order, each once."""
        return tuple(sorted({image.page for image in self.images if image.page}))
