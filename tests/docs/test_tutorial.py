"""The application of the tutorial runs when pasted, on both databases."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import held_port

GUIDE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
FILES = re.findall(r"Save as `(\w+\.py)`.*?```python\n(.*?)```", GUIDE, re.DOTALL)
[COMMANDS] = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
SECONDS = 120


@pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
def test_the_tutorial_prints_what_it_says(tmp_path, store_url):
    with held_port() as port, held_port() as receiver:

        def placed(text):
            return text.replace("8765", str(port)).replace("8766", str(receiver))

        for name, program in FILES:
            (tmp_path / name).write_text(placed(program))
        shell = subprocess.Popen(
            ["/bin/bash", "-c", f"{placed(COMMANDS)}\necho the end; wait"],
            cwd=tmp_path,
            env={
                "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
                "BACKBURNER_PORT": str(port),
                "BACKBURNER_URL": f"http://127.0.0.1:{port}",
                "BACKBURNER_STORE": store_url,
            },
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            printed = _until(shell.stdout, "the end", "batch.finished")
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
            shell.communicate(timeout=SECONDS)

    promised = re.findall(r"print\(.*# (.*)$", GUIDE, re.MULTILINE)
    assert 2 == len(promised)
    assert [] == [line for line in promised if f"{line}\n" not in printed]
    [webhook] = [line for line in printed if line.startswith("batch.finished")]
    assert "'members': {'succeeded': 100}" in webhook
    assert [] == [line for line in printed if "Traceback" in line]


def _until(lines, *marks):
    """Read lines until each mark has been seen; return them."""
    seen, missing = [], {*marks}
    for line in lines:
        seen.append(line)
        missing -= {mark for mark in missing if line.startswith(mark)}
        if not missing:
            break
    return seen
