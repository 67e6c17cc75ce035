"""
Detects the type of a file from its content.

The name is used only to distinguish Markdown, CSV and plain text.
"""

import re
import struct
from pathlib import Path
from typing import BinaryIO, Final

from backburner_extractors.errors import ExtractionError, encrypted

HEAD: Final = 8_192
"""Number of bytes at the start of a file that `detect_type` needs."""
TAIL: Final = 1 << 18
"""Number of bytes at the end of an archive, which has the names of its entries."""
PDF: Final = "application/pdf"
OFFICE: Final = "application/vnd.openxmlformats-officedocument."
DOCX: Final = OFFICE + "wordprocessingml.document"
XLSX: Final = OFFICE + "spreadsheetml.sheet"
PPTX: Final = OFFICE + "presentationml.presentation"
HTML: Final = "text/html"
MARKDOWN: Final = "text/markdown"
CSV: Final = "text/csv"
TEXT: Final = "text/plain"

MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
)
IMAGES: Final = frozenset({"image/bmp", "image/webp", *(kind for _, kind in MAGIC)})
MEMBERS: Final = (
    (b"word/document", DOCX),
    (b"xl/workbook", XLSX),
    (b"ppt/presentation", PPTX),
)
SUFFIXES: Final = {
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".csv": CSV,
    ".tsv": CSV,
    ".tab": CSV,
}
BOMS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
HTML_START: Final = re.compile(
    r"(?:<!--.*?-->|<\?xml[^>]*>|\s)*<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
MOST_CONTROLS: Final = 0.02
"""Share of control characters above which a file is not text."""
CONTROLS: Final = bytes(set(range(32)) - set(b"\t\n\r\f\x1b"))


def detect_type(head: bytes, path: Path, file_name: str = "") -> str:
    """
    Return the content type of the file at `path`, whose first bytes are `head`.

    Raises `ExtractionError`: EMPTY_FILE, ENCRYPTED_FILE or UNSUPPORTED_TYPE.
    """
    if not head:
        raise ExtractionError("EMPTY_FILE", "The file has no bytes.")
    found = _by_magic(head, path) or _text_type(head, file_name or path.name)
    if found is None:
        raise ExtractionError(
            "UNSUPPORTED_TYPE",
            "The content is of a type that is not read. Supported are PDF, DOCX,"
            " XLSX, PPTX, HTML, Markdown, CSV, plain text and images.",
        )
    return found


def read_head(path: Path) -> bytes:
    """Return the bytes that `detect_type` needs."""
    with path.open("rb") as file:
        return file.read(HEAD)


def _by_magic(head: bytes, path: Path) -> str | None:
    if b"%PDF-" in head[:1024]:
        return PDF
    if head.startswith(ZIP):
        return _archive_type(head, path)
    if head.startswith(OLE):
        raise _old_office(head, path)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head[:2] == b"BM" and head[6:10] == bytes(4):
        return "image/bmp"
    return next((kind for magic, kind in MAGIC if head.startswith(magic)), None)


def _archive_type(head: bytes, path: Path) -> str | None:
    """Return the type of an Office file from the names of its parts."""
    with path.open("rb") as file:
        names = head + _last(file, TAIL)
    if b"EncryptedPackage" in names:
        raise encrypted()
    return next((kind for name, kind in MEMBERS if name in names), None)


def _last(file: BinaryIO, count: int) -> bytes:
    size = file.seek(0, 2)
    file.seek(max(0, size - count))
    return file.read(count)


def _old_office(head: bytes, path: Path) -> ExtractionError:
    """Office's older container: an encrypted DOCX, or a DOC, XLS or PPT file."""
    if "EncryptedPackage".encode("utf-16-le") in _ole_directory(head, path):
        return encrypted()
    return ExtractionError(
        "UNSUPPORTED_TYPE",
        "Files of Office 97-2003 (DOC, XLS, PPT) are not read."
        " Save the file as DOCX, XLSX or PPTX.",
    )


def _ole_directory(head: bytes, path: Path) -> bytes:
    """Return the first entries of the directory of such a container."""
    if len(head) < 52:  # noqa: PLR2004 - the header's fields end here
        return b""
    (shift,) = struct.unpack_from("<H", head, 30)
    (sector,) = struct.unpack_from("<I", head, 48)
    with path.open("rb") as file:
        file.seek((sector + 1) << min(shift, 12))
        return file.read(HEAD)


def _text_type(head: bytes, name: str) -> str | None:
    if not is_text(head):
        return None
    start = head.decode("utf-16" if head[:2] in BOMS else "utf-8-sig", "replace")
    if HTML_START.match(start.lstrip("\ufeff")):
        return HTML
    return SUFFIXES.get(Path(name).suffix.lower(), TEXT)


def is_text(head: bytes) -> bool:
    """Whether the first bytes of a file are text in some encoding."""
    if head.startswith(BOMS):
        return True
    controls = len(head) - len(head.translate(None, CONTROLS))
    return b"\x00" not in head and controls <= MOST_CONTROLS * len(head)
