"""Images: their text by OCR, if they are not too large."""

import struct
from pathlib import Path
from typing import Final

from backburner_extractors import ocr
from backburner_extractors.collector import Collector
from backburner_extractors.detection import HEAD, read_head
from backburner_extractors.errors import ExtractionError

JPEG_SIZES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Segments of a JPEG file that have its size."""


def read(path: Path, collector: Collector) -> None:
    """Collect the text in an image."""
    width, height = size_of(read_head(path))
    if width * height > collector.limits.max_image_pixels:
        raise ExtractionError(
            "IMAGE_TOO_LARGE",
            f"The image has {width:,} × {height:,} pixels; at most"  # noqa: RUF001
            f" {collector.limits.max_image_pixels:,} are read.",
        )
    scans = ocr.Pages(collector)
    collector.add_image(1, width, height)
    collector.add_page(scans.read(path.read_bytes), "page")
    scans.finish()


def size_of(head: bytes) -> tuple[int, int]:
    """
    Return the width and height from the first bytes of an image.

    Both are 0 if they are not found, as in TIFF and WebP: then only the memory limit
    applies.
    """
    if len(head) < 26:  # noqa: PLR2004 - shorter than any header
        return 0, 0
    if head.startswith(b"\x89PNG"):
        return struct.unpack_from(">II", head, 16)
    if head.startswith(b"GIF8"):
        return struct.unpack_from("<HH", head, 6)
    if head.startswith(b"BM"):
        width, height = struct.unpack_from("<ii", head, 18)
        return abs(width), abs(height)
    return _jpeg_size(head) if head.startswith(b"\xff\xd8") else (0, 0)


def _jpeg_size(head: bytes) -> tuple[int, int]:
    """Go from segment to segment until one has the size."""
    at = 2
    while at + 9 <= min(len(head), HEAD) and head[at] == 0xFF:  # noqa: PLR2004
        if head[at + 1] in JPEG_SIZES:
            height, width = struct.unpack_from(">HH", head, at + 5)
            return width, height
        (length,) = struct.unpack_from(">H", head, at + 2)
        at += 2 + length
    return 0, 0
