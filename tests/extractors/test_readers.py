"""Details of formats that the committed documents do not show."""

import docx
import pptx
import pytest
from docx.enum.text import WD_BREAK
from docx.oxml import OxmlElement

from backburner_extractors import Limits, extract_here
from backburner_extractors.detection import HEAD, detect_type
from backburner_extractors.readers.image import size_of
from tests.extractors import hostile


def texts(path, **options):
    return [page.text for page in extract_here(path, **options).pages]


def test_docx_is_split_at_page_breaks_that_are_recorded_once(tmp_path):
    """Word records a break that was made by hand again where it shows the page."""
    document = docx.Document()
    document.add_paragraph("one").add_run().add_break(WD_BREAK.PAGE)
    run = document.add_paragraph().add_run()
    run._r.append(OxmlElement("w:lastRenderedPageBreak"))
    run.add_text("two")
    run._r.append(OxmlElement("w:lastRenderedPageBreak"))
    run.add_text("three")
    document.save(tmp_path / "a.docx")
    result = extract_here(tmp_path / "a.docx")
    assert [page.text for page in result.pages] == ["one", "two", "three"]
    assert {page.kind for page in result.pages} == {"page"}


def test_docx_tables_keep_their_rows(tmp_path):
    document = docx.Document()
    cells = [cell for row in document.add_table(2, 2).rows for cell in row.cells]
    for number, cell in enumerate(cells):
        cell.text = f"cell {number}"
    document.save(tmp_path / "a.docx")
    assert texts(tmp_path / "a.docx") == ["cell 0\tcell 1\ncell 2\tcell 3"]


def test_docx_leaves_out_what_was_moved_away(tmp_path):
    moved = "<w:p><w:moveFrom><w:r><w:t>old</w:t></w:r></w:moveFrom></w:p>"
    kept = (
        "<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>new</w:t></w:r></w:p>"
    )
    assert texts(hostile.docx(tmp_path / "a.docx", moved + kept)) == ["new"]


def test_pptx_reads_groups(tmp_path):
    slides = pptx.Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[6])
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, 9, 9).text_frame.text = "inside"
    slides.save(tmp_path / "a.pptx")
    assert texts(tmp_path / "a.pptx") == ["inside"]


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"]
)
def test_text_is_decoded(tmp_path, encoding):
    (tmp_path / "a.txt").write_bytes("Straße – naïve".encode(encoding))  # noqa: RUF001
    assert texts(tmp_path / "a.txt") == ["Straße – naïve"]  # noqa: RUF001


def test_html_is_decoded_as_it_declares(tmp_path):
    html = '<html><meta charset="gb18030"><body>备用钥匙'
    (tmp_path / "a").write_bytes(html.encode("gb18030"))
    assert texts(tmp_path / "a") == ["备用钥匙"]
    unknown = '<html><meta charset="x-unknown"><body>plain'
    (tmp_path / "a").write_bytes(unknown.encode())
    assert texts(tmp_path / "a") == ["plain"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_has_any_usual_delimiter(tmp_path, delimiter):
    rows = "\n".join(delimiter.join([f"a{n}", f"b{n}", f"c{n}"]) for n in range(5))
    (tmp_path / "a.csv").write_text(rows)
    assert texts(tmp_path / "a.csv") == [rows.replace(delimiter, "\t")]


def test_csv_in_one_column_is_read_too(tmp_path):
    (tmp_path / "a.csv").write_text("one\ntwo\n")
    assert texts(tmp_path / "a.csv") == ["one\ntwo"]


def test_images_beyond_the_limit_are_not_listed(tmp_path):
    (tmp_path / "a.html").write_text("<html>" + "<img>" * 9)
    result = extract_here(tmp_path / "a.html", limits=Limits(max_images=4))
    assert len(result.images) == 4


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"II*\x00", "image/tiff"),
        (b"RIFF\x00\x00\x00\x00WEBP", "image/webp"),
        (b"BM\x00\x00\x00\x00\x00\x00\x00\x00", "image/bmp"),
        (b"junk before %PDF-1.4", "application/pdf"),
        (b"<?xml version='1.0'?><!-- x --><HTML>", "text/html"),
        (b"\xff\xfe<\x00h\x00t\x00m\x00l\x00>\x00", "text/html"),
        (b"# title", "text/plain"),
    ],
)
def test_types_are_told_by_content(content, content_type, tmp_path):
    path = hostile.written(tmp_path / "blob", content)
    assert detect_type(content[:HEAD], path) == content_type


@pytest.mark.parametrize(
    ("head", "size"),
    [
        (b"GIF89a" + b"\x03\x00\x04\x00", (3, 4)),
        (b"BM" + bytes(16) + b"\x05\0\0\0\xfa\xff\xff\xff", (5, 6)),
        (b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x0b\x08\0\x07\0\x08", (8, 7)),
        (b"\xff\xd8\xff\xe0\xff\xff", (0, 0)),
        (b"II*\x00", (0, 0)),
        (b"", (0, 0)),
    ],
)
def test_the_size_of_an_image_is_in_its_head(head, size):
    assert size_of(head.ljust(40, b"\0") if head else head) == size
