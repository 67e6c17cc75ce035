"""Files that are made to do harm, small to send and expensive to read."""

import io
import zipfile
import zlib

from tests.extractors.documents import FOLDER

MEGABYTE = 1_000_000


def zip_of(*entries):
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return kept.getvalue()


def bomb(size=600 * MEGABYTE):
    """Return a Word file of some kilobytes whose document is huge."""
    types = (
        b'<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/'
        b'package/2006/content-types"><Override PartName="/word/document.xml" '
        b'ContentType="application/vnd.openxmlformats-officedocument.'
        b'wordprocessingml.document.main+xml"/></Types>'
    )
    return zip_of(("[Content_Types].xml", types), ("word/document.xml", bytes(size)))


def pdf_of_pages(count):
    """Return a PDF whose tree names one empty page many times."""
    kids = b"3 0 R " * count
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (count, kids),
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>",
    ]
    return _pdf(objects)


def pdf_bomb(size=500 * MEGABYTE):
    """Return a PDF with a content stream that unpacks to hundreds of megabytes."""
    packer = zlib.compressobj(9)
    piece = b"BT (water) Tj ET " * 60_000
    parts = [packer.compress(piece) for _ in range(size // len(piece))]
    stream = b"".join([*parts, packer.flush()])
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>",
        b"<</Filter/FlateDecode/Length %d>>stream\n" % len(stream)
        + stream
        + b"\nendstream",
    ]
    return _pdf(objects)


def _pdf(objects):
    body, places = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n" % number + content + b"\nendobj\n"
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    return (
        body
        + b"xref\n0 %d\n0000000000 65535 f \n" % size
        + table
        + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, len(body))
    )


def cheap():
    """Return hostile files that are refused quickly, by name."""
    pdf, docx = (FOLDER / "handbook.pdf").read_bytes(), "handbook.docx"
    word = (FOLDER / docx).read_bytes()
    return {
        "corrupt.pdf": b"%PDF-1.7\n" + bytes(range(256)) * 40,
        "truncated.docx": word[: len(word) // 2],
        "truncated.pdf": pdf[: len(pdf) // 3],
        "empty.pdf": b"",
        "mislabelled.pdf": b"PLAIN TEXT that is called a PDF is read as text. " * 9,
        "binary.txt": bytes(range(256)) * 100,
        "bomb.docx": bomb(),
        "nested.xlsx": zip_of(("a.zip", zip_of(("b.zip", bytes(MEGABYTE))))),
    }


def costly():
    """Return hostile files that take time and memory until they are stopped."""
    return {
        "pages.pdf": pdf_of_pages(100_000),
        "stream.pdf": pdf_bomb(),
        "words.txt": b"water " * 15_000_000,
        "rows.csv": b"1,2,3,4,5\n" * 5_000_000,
    }
