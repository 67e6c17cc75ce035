"""CSV: one sheet, with tabs between the cells of a row."""

import csv
import io
from pathlib import Path
from typing import Final

from backburner_extractors.collector import Collector
from backburner_extractors.readers.decoding import read_text

SAMPLE: Final = 16_384
DELIMITERS: Final = ",;\t|"


def read(path: Path, collector: Collector) -> None:
    """Collect the rows of a CSV file."""
    text = read_text(path, collector)
    csv.field_size_limit(collector.limits.max_text_chars + 1)
    rows = csv.reader(io.StringIO(text, newline=""), _dialect(text[:SAMPLE]))
    lines = ("\t".join(" ".join(cell.split()) for cell in row) for row in rows)
    collector.add_page("\n".join(lines), "sheet")


def _dialect(sample: str) -> type[csv.Dialect]:
    try:
        return csv.Sniffer().sniff(sample, DELIMITERS)
    except csv.Error:
        return csv.excel
