"""The public API is typed: a type checker finds wrong inputs, options and results."""

import re
from pathlib import Path
from typing import get_type_hints

from mypy import api

from backburner.engine.options import SubmitGroupOptions, SubmitOptions
from backburner.engine.submit.submission import GroupOptions, Options

ROOT = Path(__file__).parents[2]
CALLS = Path(__file__).parent / "typed_api.py"


def test_a_type_checker_refuses_wrong_calls_and_no_others(monkeypatch):
    lines = CALLS.read_text().splitlines()
    refused = [n for n, line in enumerate(lines, 1) if line.endswith("# refused")]
    monkeypatch.chdir(ROOT)  # where its configuration and its cache are

    report, _, _ = api.run(["--strict", str(CALLS.relative_to(ROOT))])

    found = re.findall(r"typed_api\.py:(\d+): error", report)
    assert refused == sorted({int(line) for line in found}), report


def test_the_typed_options_are_those_that_are_taken():
    assert get_type_hints(Options) == get_type_hints(SubmitOptions)
    assert get_type_hints(GroupOptions) == get_type_hints(SubmitGroupOptions)
