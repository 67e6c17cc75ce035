"""
Which seeds are new in this run, and which failed once.

The new ones follow from the commit that is checked out: each commit tries others, and
whoever has the commit can run them again. Outside a checkout they are drawn.

    BACKBURNER_TEST_FRESH_FROM=<commit>    those of another commit, or of any text
    BACKBURNER_TEST_FRESH_SEEDS=5000       how many; 100 unless told, 0 for none
"""

import hashlib
import os
import secrets
import subprocess
from pathlib import Path

COUNT = 100
FAILED = Path(__file__).with_name("failed_seeds.txt")
"""Seeds that found a fault, each with what it was; they are run for ever."""


def origin() -> str:
    """Return what the new seeds follow from."""
    chosen = os.environ.get("BACKBURNER_TEST_FRESH_FROM")
    return chosen or commit(Path(__file__).parent) or secrets.token_hex(20)


def commit(folder: Path) -> str:
    """Return the id of the commit that is checked out in a folder; empty if none."""
    try:
        told = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""


def fresh(from_: str) -> list[int]:
    """Return the seeds that follow from a text."""
    count = int(os.environ.get("BACKBURNER_TEST_FRESH_SEEDS", COUNT))
    texts = (f"{from_}:{number}".encode() for number in range(count))
    return [int.from_bytes(hashlib.sha256(text).digest()[:5]) for text in texts]


def failed() -> list[int]:
    """Return the seeds that failed once."""
    lines = FAILED.read_text().splitlines()
    return [int(line.partition("#")[0]) for line in lines if line.partition("#")[0]]
