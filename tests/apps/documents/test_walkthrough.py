"""The guide's walkthrough, typed into a real shell with a real curl."""

import re
from pathlib import Path

import pytest
import yaml

from backburner_apps.documents import metrics
from tests import warm
from tests.apps.documents.fleet import Fleet
from tests.ports import held_port

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "documents.md").read_text()
SECONDS = 120


def walkthrough():
    part = re.search(r"<!-- walkthrough -->(.*)<!-- /walkthrough -->", GUIDE, re.DOTALL)
    return re.search(r"```sh\n(.*?)```", part[1], re.DOTALL)[1]


@pytest.fixture
async def fleet(tmp_path, store_url):
    with held_port() as port:
        found = Fleet(tmp_path, store_url, port)
        await found.serve()
        found.work()
        yield found
        found.kill()


async def test_the_walkthrough_does_what_it_says(fleet, tmp_path):
    told = warm.run(
        ["/bin/bash", "-euo", "pipefail", "-c", walkthrough()],
        cwd=tmp_path,
        env={"URL": f"http://127.0.0.1:{fleet.port}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert told.returncode == 0, told.stderr
    promised = [
        '"status":"queued"',
        '"status":"completed"',
        '"ready":1',
        '"status":"ready"',
        '"chunkCount":1',
        '"snippet":"The heron stands',
        '{"entries":[],"total":0}',
        '{"results":[]}',
        "204\n",
    ]
    missing = [text for text in promised if text not in told.stdout]
    assert missing == [], told.stdout


@pytest.mark.one_store
def test_the_alert_rules_name_metrics_that_exist():
    rules = yaml.safe_load((DOCS / "documents-alerts.yaml").read_text())
    expressions = " ".join(rule["expr"] for rule in rules["groups"][0]["rules"])
    named = set(re.findall(r"documents_\w+", expressions))
    known = {f"{metric._name}_total" for metric in metrics.EVERY}
    assert named
    assert named <= known
