"""
The memory of a process that has hostile files read, eight at once, and of its children.

A process of its own is measured: that of the tests is large. Its peak is read from
/proc: getrusage() counts the tests' own memory, which the process shares as it starts.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from backburner_extractors import Limits
from tests.extractors import hostile
from tests.extractors.documents import FOLDER

pytestmark = pytest.mark.thorough

MEBIBYTE = 1 << 20
PROMISED = 500_000_000
READER = """
import asyncio, json, sys
from pathlib import Path
from backburner_extractors import ExtractionError, extract, extract_here

async def outcome(path, gate):
    async with gate:
        try:
            return path.name, len((await extract(path)).text)
        except ExtractionError as error:
            return path.name, error.code

async def main():
    gate = asyncio.Semaphore(8)
    paths = sorted(Path(sys.argv[1]).iterdir())
    outcomes = dict(await asyncio.gather(*(outcome(path, gate) for path in paths)))
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) << 10
    print(json.dumps([outcomes, peak]))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files that take all the memory they get, and long texts among them."""
    folder = tmp_path_factory.mktemp("hostile")
    attributes = b"<html " + b"a " * 7_500_000
    text = "\n".join(["长" * 999_999] * 4).encode()
    made = [
        (4, hostile.written(folder / "attributes0.html", attributes)),
        (4, hostile.pdf_of_text(folder / "stream0.pdf", 40)),
        (2, hostile.xlsx_with_distant_cell(folder / "distant0.xlsx")),
        (2, hostile.docx_bomb(folder / "bomb0.docx", 270)),
        (8, hostile.written(folder / "text0.txt", text)),
    ]
    for count, path in made:
        for number in range(1, count):
            name = path.name.replace("0", str(number))
            (folder / name).hardlink_to(path)
    hostile.pdf_of_pages(folder / "pages.pdf")
    hostile.noise(folder / "noise.pdf", start=b"%PDF-1.7")
    for name in ("handbook.docx", "prices.pdf", "slides.pptx", "workbook.xlsx"):
        hostile.written(folder / name, (FOLDER / name).read_bytes())
    return folder


class Peaks:
    """The largest memory of each child process, and of all together."""

    def __init__(self):
        self.each = Counter()
        self.together = 0

    def look(self, parent):
        now = Counter()
        for child in parent.children(recursive=True):
            try:
                now[child.pid] = child.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self.each |= now
        self.together = max(self.together, now.total())


def measured(folder, program=READER):
    command = [sys.executable, "-c", program, str(folder)]
    peaks = Peaks()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
        process = psutil.Process(reader.pid)
        while reader.poll() is None:
            peaks.look(process)
            try:
                process.wait(0.05)
            except psutil.TimeoutExpired:
                continue
        outcomes, peak = json.loads(reader.stdout.read())
    return outcomes, peak, peaks


def test_eight_hostile_files_at_once_leave_the_worker_small(folder, record_property):
    outcomes, peak, peaks = measured(folder)
    by_kind = Counter(
        (Path(name).stem.rstrip("0123456789"), str(found))
        for name, found in outcomes.items()
        if Path(name).stem[-1].isdigit()
    )
    assert by_kind == {
        ("attributes", "OUT_OF_MEMORY"): 4,
        ("stream", "OUT_OF_MEMORY"): 4,
        ("distant", "OUT_OF_MEMORY"): 2,
        ("bomb", "ARCHIVE_TOO_LARGE"): 2,
        ("text", "3999999"): 8,
    }
    assert outcomes["pages.pdf"] == "TOO_MANY_PAGES"
    assert outcomes["noise.pdf"] == "CORRUPT_FILE"
    assert all(outcomes[name] > 100 for name in ("handbook.docx", "prices.pdf"))
    assert peak < PROMISED
    assert max(peaks.each.values()) <= Limits().memory_bytes
    figures = [peak, max(peaks.each.values()), peaks.together]
    worker, largest, together = (figure // 1_000_000 for figure in figures)
    record_property(
        "told",
        f"extractors, eight hostile files at once: worker {worker} MB, largest child"
        f" {largest} MB, children together {together} MB",
    )


def test_control_without_children_the_worker_takes_the_memory(folder, tmp_path):
    (tmp_path / "a.html").hardlink_to(folder / "attributes0.html")
    program = READER.replace("await extract(path)", "extract_here(path)")
    _, peak, _ = measured(tmp_path, program)
    assert peak > PROMISED
