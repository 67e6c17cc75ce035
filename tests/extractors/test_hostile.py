"""Hostile files end with a clear reason, by a child process with small limits."""

import os
import sys
from dataclasses import replace
from functools import partial

import pytest

from backburner_extractors import ExtractionError, Limits, extract, extract_apart
from tests.extractors import hostile
from tests.extractors.documents import FOLDER

MEBIBYTE = 1 << 20
LIMITS = Limits(max_text_chars=200_000, cpu_seconds=20)
WITHOUT_ARCHIVE_CHECK = replace(
    LIMITS,
    memory_bytes=128 * MEBIBYTE,
    max_archive_bytes=1 << 40,
    max_archive_ratio=1 << 20,
)
CASES = {
    "empty.pdf": (partial(hostile.written, content=b""), "EMPTY_FILE"),
    "noise.pdf": (partial(hostile.noise, start=b"%PDF-1.7\n"), "CORRUPT_FILE"),
    "noise.bin": (hostile.noise, "UNSUPPORTED_TYPE"),
    "noise.zip": (partial(hostile.noise, start=b"PK\3\4"), "UNSUPPORTED_TYPE"),
    "password.pdf": (hostile.pdf_with_password, "ENCRYPTED_FILE"),
    "password.docx": (
        lambda path: hostile.ole(path, "EncryptionInfo", "EncryptedPackage"),
        "ENCRYPTED_FILE",
    ),
    "old.doc": (lambda path: hostile.ole(path, "WordDocument"), "UNSUPPORTED_TYPE"),
    "bomb.docx": (hostile.docx_bomb, "ARCHIVE_TOO_LARGE"),
    "bomb.xlsx": (hostile.xlsx_bomb, "ARCHIVE_TOO_LARGE"),
    "false_sizes.docx": (hostile.docx_with_false_sizes, "CORRUPT_FILE"),
    "entries.docx": (hostile.docx_with_many_entries, "ARCHIVE_TOO_LARGE"),
    "laughs.docx": (hostile.docx_of_laughs, "CORRUPT_FILE"),
    "distant.xlsx": (hostile.xlsx_with_distant_cell, "OUT_OF_MEMORY"),
    "pages.pdf": (hostile.pdf_of_pages, "TOO_MANY_PAGES"),
    "image.png": (hostile.png, "IMAGE_TOO_LARGE"),
    "line.txt": (partial(hostile.written, content=b"x" * 900_000), "TEXT_TOO_LARGE"),
    "line.csv": (partial(hostile.written, content=b'"x,' * 300_000), "TEXT_TOO_LARGE"),
}


def refused(path, limits=LIMITS):
    with pytest.raises(ExtractionError) as refusal:
        extract_apart(path, limits=limits)
    return refusal.value


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_is_refused_with_its_reason(name, tmp_path):
    make, code = CASES[name]
    error = refused(make(tmp_path / name))
    assert error.code == code
    assert name not in error.message
    final = {"CORRUPT_FILE", "OUT_OF_MEMORY", "TIMED_OUT", "EXTRACTOR_CRASHED"}
    assert error.is_retryable == (code in final)


@pytest.mark.parametrize(
    "name", ["handbook.pdf", "handbook.docx", "workbook.xlsx", "slides.pptx"]
)
def test_a_truncated_file_is_corrupt(name, tmp_path):
    assert refused(hostile.cut(tmp_path / name, FOLDER / name)).code == "CORRUPT_FILE"


@pytest.mark.parametrize(
    ("name", "label", "content_type"),
    [
        ("prices.pdf", "prices.txt", "application/pdf"),
        ("customers-bom.csv", "sheet.xlsx", "text/plain"),
        ("shouce.html", "page.pdf", "text/html"),
    ],
)
def test_a_false_name_changes_nothing(name, label, content_type):
    result = extract_apart(FOLDER / name, file_name=label)
    assert result.content_type == content_type
    assert result.text


def test_deep_html_costs_no_more_than_its_cpu_time(tmp_path):
    """Without a limit this takes minutes: finding an open element is a long way."""
    deep = hostile.html_nested(tmp_path / "deep.html", 800_000)
    assert refused(deep, Limits(cpu_seconds=1, wall_seconds=300)).code == "TIMED_OUT"
    control = hostile.html_nested(tmp_path / "flat.html", 2_000)
    assert extract_apart(control).text == "core"


def test_a_huge_page_and_a_huge_image_in_a_pdf_are_rendered_small(tmp_path):
    paths = [
        hostile.pdf_of_image(tmp_path / "image.pdf", side=8_000),
        hostile.pdf_of_image(tmp_path / "page.pdf", 500, b"0 0 1000000 1000000"),
    ]
    for path in paths:
        result = extract_apart(path)
        assert len(result.pages) == 1
        assert result.image_pages == (1,)


def test_a_page_that_takes_all_memory_ends_its_child(tmp_path):
    """The parser aborts. Why is known only to a parent that is smaller than its child:
    tests/extractors/test_memory.py has one."""
    path = hostile.pdf_of_text(tmp_path / "stream.pdf", 40)
    error = refused(path)
    assert error.code in {"OUT_OF_MEMORY", "EXTRACTOR_CRASHED"}
    assert "256 MiB of memory" in error.message


async def test_a_file_that_never_ends_is_timed_out(tmp_path):
    """A pipe that nobody writes to takes no CPU time."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ExtractionError) as refusal:
        await extract(tmp_path / "pipe", limits=Limits(wall_seconds=0.5))
    assert refusal.value.code == "TIMED_OUT"


async def test_a_missing_file_is_the_callers_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        await extract(tmp_path / "missing.pdf")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make", "size"), [(hostile.docx_bomb, 300), (hostile.xlsx_bomb, 300)]
)
def test_control_without_the_check_a_bomb_is_inflated(make, size, tmp_path):
    """Then it is the limit of memory that ends the child."""
    path = make(tmp_path / "bomb", size)
    assert refused(path).code == "ARCHIVE_TOO_LARGE"
    assert refused(path, WITHOUT_ARCHIVE_CHECK).code == "OUT_OF_MEMORY"


def test_control_without_its_limit_an_image_reaches_tesseract(tmp_path):
    path = hostile.png(tmp_path / "image.png")
    assert refused(path).code == "IMAGE_TOO_LARGE"
    lifted = Limits(max_image_pixels=1 << 40, memory_bytes=96 * MEBIBYTE)
    assert refused(path, lifted).code in {"OUT_OF_MEMORY", "CORRUPT_FILE"}


def test_control_without_the_check_entities_reach_the_parser(tmp_path, monkeypatch):
    path = hostile.docx_of_laughs(tmp_path / "laughs.docx")
    assert "document type declaration" in refused(path).message
    child = (
        "from backburner_extractors import archive, child;"
        "archive._check_entities = lambda name, start: None; child.main()"
    )
    command = (sys.executable, "-P", "-c", child)
    monkeypatch.setattr("backburner_extractors.process.COMMAND", command)
    assert "document type declaration" not in outcome(path)


def outcome(path):
    try:
        return extract_apart(path, limits=LIMITS).text
    except ExtractionError as error:
        return error.message
