"""XLSX: a page for each sheet, with tabs between the cells of a row."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from python_calamine import CalamineSheet, CalamineWorkbook

from backburner_extractors.collector import Collector

MEDIA: Final = "xl/media/"


def read(path: Path, collector: Collector) -> None:
    """Collect the rows of each sheet, and count the images."""
    with CalamineWorkbook.from_path(str(path)) as workbook:
        names = workbook.sheet_names
        collector.expect_pages(len(names))
        for name in names:
            lines = _lines(workbook.get_sheet_by_name(name), collector)
            collector.add_page("\n".join(lines), "sheet", name)
    with zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            if entry.startswith(MEDIA):
                collector.add_image(None)


def _lines(sheet: CalamineSheet, collector: Collector) -> Iterator[str]:
    chars = 0
    for row in sheet.iter_rows():
        line = "\t".join(_text(cell) for cell in row).rstrip("\t")
        chars += len(line) + 1
        collector.expect_chars(chars)
        yield line


def _text(cell: object) -> str:
    """Return a cell as text: whole numbers without a fraction, on one line."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return " ".join(str(cell).split())
