"""Makes files that damage, deceive or exhaust a reader: each function writes one."""

import random
import struct
import zipfile
import zlib

from reportlab.pdfgen.canvas import Canvas

TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/'
    '2006/content-types"><Default Extension="rels" ContentType="application/'
    'vnd.openxmlformats-package.relationships+xml"/><Override PartName="/%s"'
    ' ContentType="application/vnd.openxmlformats-officedocument.%s.main+xml"/>%s'
    "</Types>"
)
RELATIONS = (
    '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/'
    'package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.'
    'openxmlformats.org/officeDocument/2006/relationships/%s" Target="%s"/>'
    "</Relationships>"
)
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
MEBIBYTE = 1 << 20


def document(body):
    """The XML of a DOCX file."""
    return (
        f'<?xml version="1.0"?><w:document xmlns:w="{WORD}"><w:body>{body}'
        "</w:body></w:document>"
    )


def write_docx(path, parts):
    """A DOCX file whose document is made of pieces, each compressed in turn."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        kind = "wordprocessingml.document"
        types = TYPES % ("word/document.xml", kind, "")
        archive.writestr("[Content_Types].xml", types)
        relations = RELATIONS % ("officeDocument", "word/document.xml")
        archive.writestr("_rels/.rels", relations)
        with archive.open("word/document.xml", "w", force_zip64=True) as entry:
            for part in parts:
                entry.write(part)
    return path


def docx(path, body="<w:p><w:r><w:t>plain</w:t></w:r></w:p>"):
    return write_docx(path, [document(body).encode()])


def docx_bomb(path, mebibytes=600):
    """2.6 MB that become 600 MB of one paragraph's text."""
    head, tail = document("<w:p><w:r><w:t>|</w:t></w:r></w:p>").encode().split(b"|")
    block = b"A" * MEBIBYTE
    return write_docx(path, [head, *[block] * mebibytes, tail])


def docx_with_false_sizes(path, mebibytes=40):
    """A bomb whose directory says that each entry has 1,000 bytes."""
    docx_bomb(path, mebibytes)
    content = bytearray(path.read_bytes())
    at = content.rfind(b"PK\x01\x02", 0, content.rfind(b"word/document.xml"))
    struct.pack_into("<I", content, at + 24, 1_000)
    path.write_bytes(content)
    return path


def docx_with_many_entries(path, count=12_000):
    docx(path)
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(count):
            archive.writestr(f"word/e{number}", b"")
    return path


def docx_of_laughs(path):
    """Entities that expand to a billion words."""
    lines = ['<!ENTITY lol "lol">']
    for depth in range(1, 10):
        inner = f"&lol{depth - 1 or ''};" * 10
        lines.append(f'<!ENTITY lol{depth} "{inner}">')
    body = document("<w:p><w:r><w:t>&lol9;</w:t></w:r></w:p>")
    types = f"<!DOCTYPE w:document [{''.join(lines)}]>"
    return write_docx(path, [body.replace("?><", f"?>{types}<", 1).encode()])


def xlsx(path, rows):
    """An XLSX file with one sheet, whose XML is made of pieces."""
    kind = "spreadsheetml.sheet"
    sheet = (
        '<Override PartName="/xl/worksheets/sheet1.xml" ContentType="application/'
        'vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/>'
    )
    book = (
        f'<?xml version="1.0"?><workbook xmlns="{SHEET}" xmlns:r="http://schemas.'
        'openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet'
        ' name="One" sheetId="1" r:id="rId1"/></sheets></workbook>'
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(
            "[Content_Types].xml", TYPES % ("xl/workbook.xml", kind, sheet)
        )
        archive.writestr(
            "_rels/.rels", RELATIONS % ("officeDocument", "xl/workbook.xml")
        )
        archive.writestr("xl/workbook.xml", book)
        relations = RELATIONS % ("worksheet", "worksheets/sheet1.xml")
        archive.writestr("xl/_rels/workbook.xml.rels", relations)
        with archive.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as entry:
            entry.write(f'<worksheet xmlns="{SHEET}"><sheetData>'.encode())
            for row in rows:
                entry.write(row)
            entry.write(b"</sheetData></worksheet>")
    return path


def xlsx_bomb(path, mebibytes=300):
    """Rows of one number each, 1 MB at a time."""
    row = b"<row><c><v>1</v></c></row>"
    return xlsx(path, [row * (MEBIBYTE // len(row))] * mebibytes)


def xlsx_with_distant_cell(path):
    """Two cells, in the corners of the largest sheet: 17 billion cells between them."""
    rows = b'<row r="1"><c r="A1"><v>1</v></c></row>'
    last = b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    return xlsx(path, [rows, last])


def pdf(path, objects, root=1):
    """A PDF file with numbered objects and a right table of them."""
    out = bytearray(b"%PDF-1.7\n")
    places = []
    for number, content in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer<</Size %d/Root %d 0 R>>\n" % (len(places) + 1, root)
    out += b"startxref\n%d\n%%%%EOF\n" % start
    path.write_bytes(out)
    return path


def stream(content, more=b""):
    packed = zlib.compress(content, 9)
    head = b"<</Length %d/Filter/FlateDecode%b>>" % (len(packed), more)
    return head + b"stream\n" + packed + b"\nendstream"


def pdf_of_pages(path, count=100_000):
    """Each page a small object of its own."""
    kids = b" ".join(b"%d 0 R" % number for number in range(3, count + 3))
    pages = b"<</Type/Pages/Count %d/Kids[%b]/MediaBox[0 0 9 9]>>" % (count, kids)
    page = b"<</Type/Page/Parent 2 0 R>>"
    return pdf(path, [b"<</Type/Catalog/Pages 2 0 R>>", pages, *[page] * count])


def pdf_of_image(path, side=30_000, media=b"0 0 612 792"):
    """A page with nothing but an image of `side` by `side` points, all black."""
    line = zlib.compressobj(1)
    row = bytes(side)
    packed = b"".join(line.compress(row) for _ in range(side)) + line.flush()
    image = (
        b"<</Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceGray"
        b"/BitsPerComponent 8/Filter/FlateDecode/Length %d>>stream\n%b\nendstream"
    ) % (side, side, len(packed), packed)
    page = (
        b"<</Type/Page/Parent 2 0 R/MediaBox[%b]/Contents 4 0 R"
        b"/Resources<</XObject<</I 5 0 R>>>>>>"
    ) % media
    draw = stream(b"600 0 0 700 0 0 cm /I Do")
    pages = b"<</Type/Pages/Count 1/Kids[3 0 R]>>"
    return pdf(path, [b"<</Type/Catalog/Pages 2 0 R>>", pages, page, draw, image])


def pdf_of_text(path, megabytes=64):
    """A page whose content stream becomes very long."""
    block = b"BT /F 1 Tf (lorem ipsum dolor sit amet) Tj ET\n"
    content = stream(block * (megabytes * MEBIBYTE // len(block)))
    page = (
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources"
        b"<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>"
    )
    pages = b"<</Type/Pages/Count 1/Kids[3 0 R]>>"
    return pdf(path, [b"<</Type/Catalog/Pages 2 0 R>>", pages, page, content])


def png(path, side=8_000):
    """An image whose header promises `side` by `side` points."""

    def chunk(kind, content):
        check = zlib.crc32(kind + content)
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    line = zlib.compressobj(1)
    row = bytes(side + 1)
    rows = b"".join(line.compress(row) for _ in range(side)) + line.flush()
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)
    return path


def html_nested(path, depth=1_000_000):
    path.write_text("<!doctype html>" + "<div>" * depth + "core")
    return path


def noise(path, size=100_000, start=b""):
    path.write_bytes(start + random.Random(7).randbytes(size))
    return path


def ole(path, *streams):
    """Office's older container with a directory of these names, and nothing else."""
    names = ["Root Entry", *streams]
    entries = b"".join(
        name.encode("utf-16-le").ljust(64, b"\0")
        + struct.pack("<H", 2 * len(name) + 2).ljust(64, b"\0")
        for name in names
    )
    header = bytearray(512)
    header[:8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    struct.pack_into("<HHHH", header, 24, 0x3E, 3, 0xFFFE, 9)
    struct.pack_into("<II", header, 44, 1, 1)
    path.write_bytes(bytes(header) + bytes(512) + entries.ljust(1024, b"\0"))
    return path


def pdf_with_password(path):
    canvas = Canvas(str(path), encrypt="secret")
    canvas.drawString(100, 100, "nobody reads this")
    canvas.save()
    return path


def cut(path, source, share=0.5):
    """A file that ends too early."""
    content = source.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    return path


def written(path, content):
    path.write_bytes(content)
    return path
