"""Measures the prompt guard on labelled texts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from backburner.cli import printing
from backburner.cli.asking import JsonOption
from backburner.domain.guard.measure import (
    THRESHOLDS,
    Curve,
    Half,
    Sample,
    chosen,
    curves,
    fingerprint,
)

app = typer.Typer(no_args_is_help=True, help="Measure the prompt-injection guard.")

KINDS: Final = {"attack": True, "benign": False}
ATTACKS: Final = frozenset({"1", "true", "attack", "injection", "jailbreak"})
TEXTS: Final = ("text", "prompt")
HEADINGS: Final = (
    "CORPUS",
    "KIND",
    "TEXTS",
    *(f">={n}" for n in THRESHOLDS),
    "SHA-256",
)

CorporaArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="CORPUS…",
        help="File or folder; `attack=PATH` or `benign=PATH` if it has no labels.",
    ),
]
HalfOption = Annotated[
    Half, typer.Option(help="Texts to use: the tuning half or the held-out half.")
]


class Corpus(NamedTuple):
    """Texts from one place."""

    name: str
    samples: list[Sample]


class Row(NamedTuple):
    """The result for one kind of text in a corpus."""

    corpus: str
    curve: Curve
    sha256: str

    @property
    def kind(self) -> str:
        """The label of the texts."""
        return "attack" if self.curve.is_attack else "benign"

    def fields(self) -> list[Any]:
        """Return the row for a table."""
        shares = [f"{self.curve.share(least):.1%}" for least in THRESHOLDS]
        return [self.corpus, self.kind, self.curve.texts, *shares, self.sha256]

    def told(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return {
            "corpus": self.corpus,
            "kind": self.kind,
            "texts": self.curve.texts,
            "reached": {str(n): round(self.curve.share(n), 4) for n in THRESHOLDS},
            "sha256": self.sha256,
        }


@app.command()
def evaluate(
    corpora: CorporaArgument,
    *,
    half: HalfOption = Half.ALL,
    as_json: JsonOption = False,
) -> None:
    """
    Show which share of the texts reaches each threshold of the guard.

    For attacks this is the recall, for benign texts the false positives. A corpus is a
    JSON list, a JSONL file (fields text or prompt, and label), a text file that counts
    as one document, or a folder of those.
    """
    rows = [row for said in corpora for row in _measured(read(said), half)]
    if as_json:
        for row in rows:
            printing.write_json(row.told())
    else:
        printing.write_rows(HEADINGS, [row.fields() for row in rows])


def _measured(corpus: Corpus, half: Half) -> Iterator[Row]:
    sha256 = fingerprint(corpus.samples)
    for curve in curves(chosen(corpus.samples, half)):
        yield Row(corpus.name, curve, sha256)


def read(said: str) -> Corpus:
    """Read a corpus; its label comes before its path or is in its texts."""
    kind, _, rest = said.partition("=")
    is_attack = KINDS.get(kind) if rest else None
    path = Path(said if is_attack is None else rest)
    if not path.exists():
        raise typer.BadParameter(f"{path} does not exist")
    files = (
        sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    )
    samples = [sample for file in files for sample in _samples(file, is_attack)]
    if not samples:
        raise typer.BadParameter(f"{path} contains no text")
    return Corpus(path.name, samples)


def _samples(path: Path, is_attack: bool | None) -> Iterator[Sample]:
    try:
        text = path.read_text(encoding="utf-8")
        found = _parsed(path, text)
    except ValueError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}") from None
    for row in found:
        yield _sample(path, row, is_attack)


def _parsed(path: Path, text: str) -> list[Any]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    if path.suffix != ".json":
        return [text] if text.strip() else []
    found = json.loads(text)
    return found if isinstance(found, list) else [found]


def _sample(path: Path, row: Any, is_attack: bool | None) -> Sample:
    fields = {"text": row} if isinstance(row, str) else row
    if not isinstance(fields, dict):
        raise typer.BadParameter(f"{path} must contain texts, or objects with a text")
    text = next((fields[name] for name in TEXTS if name in fields), None)
    if not isinstance(text, str):
        raise typer.BadParameter(f"{path} has an object without text or prompt")
    if is_attack is None and "label" not in fields:
        raise typer.BadParameter(
            f"{path} has no labels: use attack={path} or benign={path}"
        )
    label = str(fields.get("label", "")).lower() in ATTACKS
    return Sample(text, label if is_attack is None else is_attack)
