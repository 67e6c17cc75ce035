"""Retired words do not return: each concept has the one word of docs/glossary.md."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RETIRED = re.compile(
    r"\b(?:_?house|houses|doors?|door_of|rooms|_?bells?|bury|buried|buries|burials?"
    r"|unburied|digger|mourn|couriers?|heirlooms?|appetite|teller|booker|_?deafen"
    r"|manners|ring_up)\b"
    r"|\b(?:House|Door|Bell|Ring|Ear|Tab|Till|Road|Want|Contact|Wish|Wanted)\(",
    re.IGNORECASE,
)
ALLOWED = {
    "src/backburner/stores/shared/dead_letter_exports.py": {"burials"},  # a stored name
    "src/backburner/domain/guard/english.py": None,  # attacks, as they are written
    "src/backburner/domain/guard/foreign.py": None,
    "src/backburner_apps/documents/words.py": None,  # stop words of languages
}
"""Where a retired word may be, and which; `None`: all of them."""


def texts():
    for folder, endings in {
        "src": (".py", ".sql", ".html", ".js"),
        "docs": (".md",),
    }.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in endings and path.is_file():
                yield path.relative_to(ROOT).as_posix(), path.read_text()


def test_no_retired_word_is_in_the_source_or_the_documents():
    found = {}
    for path, text in texts():
        allowed = ALLOWED.get(path, set())
        if allowed is None:
            continue
        words = {word.lower() for word in RETIRED.findall(text)} - allowed
        if words:
            found[path] = sorted(words)

    assert {} == found


def test_each_term_of_the_glossary_is_there_once_and_in_order():
    rows = re.findall(
        r"^\| ([^|]+) \| ", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE
    )
    terms = [row for row in rows if row not in {"term", "---"}]

    assert terms == sorted(set(terms), key=str.lower)
