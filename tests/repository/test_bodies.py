"""Every request body is read through the server's limits."""

import re
from pathlib import Path

import backburner

SOURCE = Path(backburner.__file__).parents[1]
READS = re.compile(r"\brequest\.(?:body|form|json|stream)\(")


def test_only_the_limiter_reads_from_a_request():
    reading = {
        path.relative_to(SOURCE).as_posix()
        for package in ("backburner", "backburner_apps")
        for path in (SOURCE / package).rglob("*.py")
        if READS.search(path.read_text())
    }

    assert {"backburner/http/body.py"} == reading
