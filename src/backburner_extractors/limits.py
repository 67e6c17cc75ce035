"""Limits on the reading of one file."""

from dataclasses import dataclass
from typing import Final

MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """
    Limits for one file; each is checked while the file is read.

    The first three apply to the child process of `extract`; `extract_here` applies only
    the others, which limit the content.
    """

    memory_bytes: int = 256 * MEBIBYTE
    """Address space of the child process (RLIMIT_AS), and of tesseract."""
    cpu_seconds: int = 60
    """CPU time of the child process (RLIMIT_CPU), and of each tesseract."""
    wall_seconds: float = 120
    """Time from the start of the child process to its result."""
    max_pages: int = 5_000
    """Pages, sheets or slides."""
    max_text_chars: int = 4_000_000
    """Characters of all pages together."""
    max_images: int = 10_000
    """Maximum number of images that are listed."""
    max_image_pixels: int = 50_000_000
    """Pixels of an image file that is read by OCR."""
    max_ocr_pages: int = 20
    """Maximum number of PDF pages that are read by OCR; further pages have no text."""
    max_archive_bytes: int = 256 * MEBIBYTE
    """Sum of the uncompressed sizes in a DOCX, XLSX or PPTX file."""
    max_archive_entries: int = 10_000
    """Entries of a DOCX, XLSX or PPTX file."""
    max_archive_ratio: int = 200
    """Maximum ratio of uncompressed to compressed size; not checked below 16 MiB."""


DEFAULT_LIMITS: Final = Limits()
