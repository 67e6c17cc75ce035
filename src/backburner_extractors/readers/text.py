"""Plain text: one section."""

from pathlib import Path

from backburner_extractors.collector import Collector
from backburner_extractors.readers.decoding import read_text


def read(path: Path, collector: Collector) -> None:
    """Collect the text of a plain text file."""
    collector.add_page(read_text(path, collector), "section")
