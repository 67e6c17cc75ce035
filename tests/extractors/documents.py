"""The committed documents, and the texts that other programs find in them."""

import json
import re
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "fixtures" / "documents"
MANIFEST = json.loads((FOLDER / "manifest.json").read_text())
NAMES = sorted(MANIFEST["files"])
WORD = re.compile(r"[\u4e00-\u9fff]|[^\W_]+")
"""A word, or a Chinese character."""


def reference(name):
    return (FOLDER / "references" / f"{name}.txt").read_text()


def words(text):
    return Counter(word.lower() for word in WORD.findall(text))


def overlap(text, other):
    """The words of two texts that both have, as a share of each: the smaller one."""
    left, right = words(text), words(other)
    both = (left & right).total()
    return both / max(1, left.total(), right.total())
