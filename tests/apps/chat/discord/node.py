"""Runs programs with Discord's npm packages, which `make test` installs."""

import json
import os
import subprocess
from pathlib import Path

import pytest

HOME = Path(__file__).parents[4] / "tools" / "discord" / "node_modules"
SECONDS = 300


def run(*words, value=None):
    """Run Node with some arguments; skip where it is not installed, fail in CI."""
    node = HOME / ".bin" / "node"
    if not node.exists():
        missing = "Discord's npm packages are missing: run the tests by `make test`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return subprocess.run(
        [node, *words],
        input=json.dumps(value),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={"NODE_PATH": str(HOME), "PATH": os.environ["PATH"]},
    )
