"""What the guide to moving tells the operator to type works when typed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

SECONDS = 60
GUIDE = (Path(__file__).parents[2] / "docs" / "moving.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)


def test_the_blocks_of_the_guide_show_what_they_say(tmp_path, postgres_url):
    environment = {
        "NEW": postgres_url,
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }
    for script in ("backburner migrate", *BLOCKS):
        told = subprocess.run(
            ["/bin/bash", "-euc", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        promised = [line[2:] for line in script.splitlines() if line.startswith("# ")]
        assert [] == [line for line in promised if line.rstrip("…") not in told.stdout]

    assert 3 == len(BLOCKS)
