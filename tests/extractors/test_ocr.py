"""OCR is used where a file has text only in images, and reported where it is not."""

import pytest
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from backburner_extractors import ExtractionError, Limits, extract, extract_apart
from tests.extractors.documents import FOLDER


@pytest.fixture
def mixed(tmp_path):
    """A page with text, then three that show an image."""
    canvas = Canvas(str(tmp_path / "mixed.pdf"))
    canvas.drawString(100, 700, "written words")
    for _ in range(3):
        canvas.showPage()
        canvas.drawImage(str(FOLDER / "scan.png"), 0, 0, 300, 90)
    canvas.save()
    return tmp_path / "mixed.pdf"


@pytest.fixture
def _no_tesseract(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("_no_tesseract")
@pytest.mark.parametrize("name", ["scan.png", "photo.jpg", "scanned.pdf"])
async def test_without_tesseract_a_scan_says_what_to_install(name):
    with pytest.raises(ExtractionError) as refusal:
        await extract(FOLDER / name)
    assert refusal.value.code == "OCR_UNAVAILABLE"
    assert "apt-get install tesseract-ocr" in refusal.value.message
    assert not refusal.value.is_retryable


@pytest.mark.usefixtures("_no_tesseract")
async def test_without_tesseract_pages_with_text_are_still_read(mixed):
    result = await extract(mixed)
    assert [page.text for page in result.pages] == ["written words", "", "", ""]
    assert result.ocr == "unavailable"
    assert result.image_pages == (2, 3, 4)


async def test_only_pages_without_text_are_recognised(mixed, tesseract):
    tesseract("echo recognised")
    pages = (await extract(mixed)).pages
    assert [page.text for page in pages] == ["written words", *["recognised"] * 3]


async def test_no_more_pages_are_recognised_than_the_limit_says(mixed, tesseract):
    tesseract("echo recognised")
    pages = (await extract(mixed, limits=Limits(max_ocr_pages=2))).pages
    assert [page.text for page in pages][1:] == ["recognised", "recognised", ""]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 1", "CORRUPT_FILE"),
        ("echo Out of memory >&2; exit 1", "OUT_OF_MEMORY"),
        ("kill -XCPU $$", "TIMED_OUT"),
        ("echo 'Failed loading language' >&2; exit 1", "OCR_UNAVAILABLE"),
    ],
)
async def test_a_failure_of_tesseract_has_its_reason(script, code, tesseract):
    tesseract(script)
    with pytest.raises(ExtractionError) as refusal:
        await extract(FOLDER / "scan.png")
    assert refusal.value.code == code


async def test_the_languages_reach_tesseract(tesseract):
    tesseract('echo "$@"')
    result = await extract(FOLDER / "scan.png", languages="eng+deu")
    assert result.text == "stdin stdout -l eng+deu"


def test_no_byte_is_written_to_a_file(tesseract, tmp_path):
    """A child and its tesseract get a signal instead, which ends them."""
    target = tmp_path / "target"
    tesseract(f"echo text >{target}")
    with pytest.raises(ExtractionError):
        extract_apart(FOLDER / "scan.png")
    assert target.read_bytes() == b""


@pytest.mark.parametrize("kind", ["bmp", "gif", "tiff", "webp"])
def test_tesseract_reads_other_formats_without_a_file(kind, tmp_path):
    path = tmp_path / f"image.{kind}"
    Image.open(FOLDER / "scan.png").crop((0, 0, 1_000, 120)).save(path)
    result = extract_apart(path)
    assert result.content_type == f"image/{kind}"
    assert "Handbook of the Harbour Library" in result.text
