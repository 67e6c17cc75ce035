"""
One module for each family of content types, imported when it is needed.

Each has `read(path, collector)`, and imports a library that may be missing.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from backburner_extractors import detection
from backburner_extractors.collector import Collector
from backburner_extractors.errors import ExtractionError

Read = Callable[[Path, Collector], None]
MODULES: Final = {
    detection.PDF: "pdf",
    detection.DOCX: "docx",
    detection.XLSX: "xlsx",
    detection.PPTX: "pptx",
    detection.HTML: "html",
    detection.MARKDOWN: "markdown",
    detection.CSV: "csv",
    detection.TEXT: "text",
} | dict.fromkeys(detection.IMAGES, "image")
ARCHIVES: Final = frozenset({detection.DOCX, detection.XLSX, detection.PPTX})


def reader_of(content_type: str) -> Read:
    """Import the reader of a content type; raises LIBRARY_MISSING with what to do."""
    try:
        module = importlib.import_module(f"{__name__}.{MODULES[content_type]}")
    except ImportError as error:
        raise ExtractionError(
            "LIBRARY_MISSING",
            f"Files of type {content_type} need the library {error.name!r}, which"
            " cannot be imported. Run: pip install 'backburner[extractors]'",
        ) from error
    return cast("Read", module.read)
