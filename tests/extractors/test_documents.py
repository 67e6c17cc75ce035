"""
25 documents that other programs made say what those programs read in them.

`make fixtures` made them; tests/fixtures/documents/manifest.json has the programs.
"""

import asyncio

import pytest

from backburner_extractors import extract
from tests.extractors.documents import FOLDER, NAMES, overlap, reference

ALIKE = 0.94
"""Share of words at least; the numbers of lists and footnotes are the programs' own."""


@pytest.fixture(scope="module")
def results():
    """All documents, read by child processes, four at once."""

    async def read(name, gate):
        async with gate:
            return name, await extract(FOLDER / name)

    async def read_all():
        gate = asyncio.Semaphore(4)
        return dict(await asyncio.gather(*(read(name, gate) for name in NAMES)))

    return asyncio.run(read_all())


def test_there_are_25_documents_of_all_kinds_within_5_megabytes():
    assert len(NAMES) == 25
    assert {name.rpartition(".")[2] for name in NAMES} == {
        *("pdf", "docx", "xlsx", "pptx", "html", "md", "csv", "txt", "png", "jpg"),
    }
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 5_000_000


@pytest.mark.parametrize("name", NAMES)
def test_the_text_is_the_one_that_other_programs_read(results, name):
    assert overlap(results[name].text, reference(name)) >= ALIKE


def test_control_texts_of_other_documents_are_not_alike(results):
    """Those made of one source in several formats are alike, and left out."""
    assert overlap(results["handbook.pdf"].text, reference("leitfaden.pdf")) < 0.2
    assert overlap(results["shouce.docx"].text, reference("handbook.docx")) < 0.2
    assert overlap(results["prices.pdf"].text, reference("merged.pdf")) < 0.6
    half = results["handbook.pdf"].pages[0].text
    assert overlap(half, reference("handbook.pdf")) < ALIKE


def test_umlauts_and_chinese_survive_every_encoding(results):
    for name in ("customers-bom.csv", "customers-latin1.csv", "customers-utf16.csv"):
        rows = results[name].text.split("\n")
        assert rows[1].split("\t")[:3] == ["1001", "Müller, Änne", "Göttingen"]
    assert "备用钥匙在办公室的抽屉里" in results["shouce.pdf"].text.replace("\n", "")
    assert "Schweißgerät" in results["leitfaden.html"].text


def test_pages_sheets_and_slides_are_kept_apart(results):
    pages = results["prices.pdf"].pages
    assert [page.number for page in pages] == list(range(1, 13))
    assert all(f"sheet {page.number} of twelve" in page.text for page in pages)
    sheets = results["workbook.xlsx"].pages
    assert [sheet.name for sheet in sheets] == ["Harvest", "Löhne", "库存"]
    assert sheets[0].text.split("\n")[-1] == "Total\t2125\t732.5"
    slides = results["slides.pptx"].pages
    assert {slide.kind for slide in slides} == {"slide"}
    assert "Rails\t412000" in slides[2].text
    assert "colder than minus ten" in slides[3].text  # in the speaker's notes


def test_images_are_reported_with_their_pages(results):
    assert results["merged.pdf"].image_pages == (5,)
    assert results["slides.pptx"].image_pages == (5,)
    for name in ("handbook.docx", "leitfaden.docx", "leitfaden.html", "handbook.md"):
        assert len(results[name].images) == 1, name
    assert results["prices.pdf"].images == ()


def test_scans_are_read_by_ocr_and_only_they(results):
    by_ocr = {name for name in NAMES if results[name].ocr == "used"}
    assert by_ocr == {"scan.png", "photo.jpg", "scanned.pdf"}
    assert results["scanned.pdf"].image_pages == (1, 2)
