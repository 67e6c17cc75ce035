"""Markdown: the source as it is, one section; images are counted."""

import re
from pathlib import Path
from typing import Final

from backburner_extractors.collector import Collector
from backburner_extractors.readers.decoding import read_text

IMAGE: Final = re.compile(r"!\[[^\]\n]{0,1000}\][(\[]|<img\b")


def read(path: Path, collector: Collector) -> None:
    """Collect the text of a Markdown file."""
    text = read_text(path, collector)
    collector.add_page(text, "section")
    for _ in IMAGE.finditer(text):
        collector.add_image(1)
