"""The alert rules by Prometheus' own checker; `make chaos` runs this."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = [
    ROOT / "deploy" / "prometheus" / "features.rules.yaml",
    ROOT / "docs" / "documents-alerts.yaml",
]
MISSING = "promtool is not installed: it is in Debian's package prometheus"


@pytest.fixture
def promtool():
    """Run promtool; it is not part of `make test`, as its package starts a server."""
    program = shutil.which("promtool")
    if program is None:
        pytest.fail(MISSING)

    def run(*arguments):
        told = subprocess.run(  # noqa: S603 - a program of this machine
            [program, *map(str, arguments)], capture_output=True, text=True, check=False
        )
        return told.returncode, told.stdout + told.stderr

    return run


@pytest.mark.chaos
def test_promtool_accepts_the_rules(promtool):
    code, told = promtool("check", "rules", *RULES)

    assert 0 == code, told


@pytest.mark.chaos
def test_alerts_fire_at_their_limits_and_not_below(promtool):
    code, told = promtool("test", "rules", Path(__file__).parent / "alerts.yaml")

    assert 0 == code, told


@pytest.mark.chaos
def test_a_rule_that_is_wrong_is_found(promtool, tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(RULES[0].read_text().replace("max(", "maximum("))

    assert 0 != promtool("check", "rules", wrong)[0]
