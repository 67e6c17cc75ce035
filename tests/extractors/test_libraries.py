"""A type needs its own library and no other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import backburner_extractors
from tests.extractors.documents import FOLDER, MANIFEST

SOURCE = str(Path(backburner_extractors.__file__).parent.parent)
PROGRAM = """
import json, sys
from pathlib import Path
from backburner_extractors import ExtractionError, extract_here
outcomes = {}
for name in sys.argv[1:]:
    try:
        outcomes[name] = extract_here(Path(name)).text[:40]
    except ExtractionError as error:
        outcomes[name] = str(error)
print(json.dumps(outcomes))
"""
NEEDS_NOTHING = ("customers-utf16.csv", "handbook.md", "leitfaden.txt", "scan.png")
LIBRARIES = {
    "handbook.docx": "docx",
    "handbook.pdf": "pypdfium2",
    "shouce.html": "selectolax",
    "slides.pptx": "pptx",
    "workbook.xlsx": "python_calamine",
}


@pytest.fixture(scope="module")
def outcomes():
    """What a Python without any installed package reads."""
    names = [*NEEDS_NOTHING, *LIBRARIES]
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, *names],
        cwd=FOLDER,
        env={"PYTHONPATH": SOURCE, "PATH": os.defpath},
        check=True,
        capture_output=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NEEDS_NOTHING)
def test_text_csv_markdown_and_images_need_no_library(outcomes, name):
    assert outcomes[name]
    assert "LIBRARY_MISSING" not in outcomes[name]


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_missing_library_is_named_with_the_extra_to_install(outcomes, name):
    assert outcomes[name].startswith("LIBRARY_MISSING")
    assert LIBRARIES[name] in outcomes[name]
    assert "pip install 'backburner[extractors]'" in outcomes[name]


def test_the_programs_that_made_the_documents_are_recorded():
    programs = MANIFEST["programs"]
    assert set(programs) == {"pandoc", "pdftotext", "qpdf", "reportlab", "soffice"}
    assert "LibreOffice 7" in programs["soffice"]
