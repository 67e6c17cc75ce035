"""PDF: the text of each page; pages without text that show images are read by OCR."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pypdfium2
from pypdfium2 import raw

from backburner_extractors import ocr
from backburner_extractors.collector import Collector
from backburner_extractors.errors import ExtractionError, encrypted

OCR_SCALE: Final = 200 / 72
"""Rendered at 200 dots per inch, where a page has 72 points per inch."""
OCR_PIXELS: Final = 8_000_000
"""Larger pages are rendered at a lower resolution, so that the bitmap stays small."""
MOST_OBJECTS: Final = 20_000
"""Maximum number of objects of a page that are searched for images."""


def read(path: Path, collector: Collector) -> None:
    """Collect the text and the images of a PDF file, page by page."""
    scans = ocr.Pages(collector)
    with _opened(path) as document:
        _check_count(len(document), collector)
        for index in range(len(document)):
            with closing(document[index]) as page:
                _read_page(page, collector, scans)
    scans.finish()


def _check_count(count: int, collector: Collector) -> None:
    if not count:
        raise ExtractionError("CORRUPT_FILE", "The file has no pages.")
    collector.expect_pages(count)


@contextmanager
def _opened(path: Path) -> Iterator[pypdfium2.PdfDocument]:
    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == raw.FPDF_ERR_PASSWORD:
            raise encrypted() from error
        raise
    with closing(document):
        yield document


def _read_page(
    page: pypdfium2.PdfPage, collector: Collector, scans: "ocr.Pages"
) -> None:
    with closing(page.get_textpage()) as text_page:
        collector.expect_chars(text_page.count_chars())
        text = text_page.get_text_range()
    number = len(collector.pages) + 1
    has_images = _add_images(page, number, collector)
    if has_images and not text.strip():
        text = scans.read(lambda: _rendered(page))
    collector.add_page(text, "page")


def _add_images(page: pypdfium2.PdfPage, number: int, collector: Collector) -> bool:
    found = False
    images = page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=3)
    for _, image in zip(range(MOST_OBJECTS), images, strict=False):
        width, height = image.get_px_size()
        collector.add_image(number, width, height)
        found = True
    return found


def _rendered(page: pypdfium2.PdfPage) -> bytes:
    """Return a grey image of the page as PGM, a format that needs no library."""
    width, height = page.get_size()
    scale = min(OCR_SCALE, (OCR_PIXELS / max(1.0, width * height)) ** 0.5)
    bitmap = page.render(scale=scale, grayscale=True)
    header = f"P5 {bitmap.width} {bitmap.height} 255\n".encode()
    rows = memoryview(bitmap.buffer).cast("B")
    lines = (
        rows[start : start + bitmap.width]
        for start in range(0, bitmap.stride * bitmap.height, bitmap.stride)
    )
    return header + b"".join(lines)
