"""
Refuses archives that would become too large, before a parser reads them.

The sizes in the directory of an archive may be false, so each entry is also inflated
and counted; nothing of it is kept.
"""

import zipfile
from pathlib import Path
from typing import Final

from backburner_extractors.errors import ExtractionError, encrypted
from backburner_extractors.limits import MEBIBYTE, Limits

SMALL_ARCHIVE: Final = 16 * MEBIBYTE
"""An archive that becomes no larger than this may have any ratio."""
CHUNK: Final = 1 << 18
ENCRYPTED: Final = 0x1
XML: Final = (".xml", ".rels", ".vml")


def check_archive(path: Path, limits: Limits) -> None:
    """Raise `ExtractionError` unless the Office file at `path` is within the limits."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        _check_count(len(entries), limits)
        most = _largest_size(path.stat().st_size, limits)
        _check_size(sum(entry.file_size for entry in entries), most)
        if any(entry.flag_bits & ENCRYPTED for entry in entries):
            raise encrypted()
        _inflate(archive, entries, most)


def _largest_size(file_size: int, limits: Limits) -> int:
    by_ratio = max(SMALL_ARCHIVE, file_size * limits.max_archive_ratio)
    return min(limits.max_archive_bytes, by_ratio)


def _check_count(count: int, limits: Limits) -> None:
    if count > limits.max_archive_entries:
        raise ExtractionError(
            "ARCHIVE_TOO_LARGE",
            f"The file contains {count:,} parts; at most"
            f" {limits.max_archive_entries:,} are read.",
        )


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise ExtractionError(
            "ARCHIVE_TOO_LARGE",
            f"The file's content would become larger than {most:,} bytes when it is"
            " decompressed.",
        )


def _inflate(
    archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo], most: int
) -> None:
    total = 0
    for entry in entries:
        with archive.open(entry) as content:
            chunk = content.read(CHUNK)
            _check_entities(entry.filename, chunk)
            while chunk:
                total += len(chunk)
                _check_size(total, most)
                chunk = content.read(CHUNK)


def _check_entities(name: str, start: bytes) -> None:
    """Refuse XML that declares entities: Office never does, "billion laughs" does."""
    if name.lower().endswith(XML) and b"<!DOCTYPE" in start[:4_096]:
        raise ExtractionError(
            "CORRUPT_FILE",
            "The file contains XML with a document type declaration, which Office"
            " files must not have.",
        )
