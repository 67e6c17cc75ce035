"""`extract` reads small files of each kind in a child process."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from backburner_extractors import ExtractionError, Page, extract, extract_here
from tests.extractors.documents import FOLDER

GUIDE = Path(__file__).parents[2] / "docs" / "extractors.md"

HTML = """<!doctype html><title>Prices &amp; terms</title><style>p { top: 0 }</style>
<div>first</div>then <b>tog</b>ether<ul><li>one<li>two</ul>
<table><tr><td>1<td>2<tr><td>3<td>4</table><script>hidden()</script><img src=x>"""


async def test_plain_text_is_one_section(tmp_path):
    path = tmp_path / "blob"
    path.write_text("Grüße\r\naus Köln \r\n\r\n\r\n\r\n" + "你好" * 20 + "\x07\n")
    result = await extract(path, file_name="note.txt")
    assert result.content_type == "text/plain"
    assert result.pages == (Page(1, "Grüße\naus Köln\n\n" + "你好" * 20, "section"),)


async def test_html_gives_its_visible_text_line_by_line(tmp_path):
    path = tmp_path / "page.bin"
    path.write_text(HTML)
    result = await extract(path)
    (page,) = result.pages
    assert page.name == "Prices & terms"
    assert page.text.split("\n") == [
        *("first", "then together", "", "one", "two", "", "1\t2", "3\t4"),
    ]
    assert result.image_pages == (1,)


async def test_a_child_and_this_process_read_the_same(tmp_path):
    path = tmp_path / "a.html"
    path.write_text(HTML)
    assert await extract(path) == await asyncio.to_thread(extract_here, path)


async def test_an_empty_file_is_refused(tmp_path):
    path = tmp_path / "empty.pdf"
    path.touch()
    with pytest.raises(ExtractionError) as refusal:
        await extract(path)
    assert refusal.value.code == "EMPTY_FILE"
    assert not refusal.value.is_retryable


@pytest.mark.parametrize(
    ("name", "ends"), [("workbook.xlsx", "OCR: none"), ("missing", "FileNotFoundError")]
)
def test_the_program_of_the_guide_works(name, ends):
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    command = [sys.executable, "-c", program, str(FOLDER / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ends in done.stdout + done.stderr
    assert ("--- sheet 3 库存" in done.stdout) == (done.returncode == 0)
