import io
import json
from datetime import timedelta

import pytest
import structlog

from backburner.domain.jobs import transitions
from backburner.domain.jobs.outcome import Failed, Snooze
from backburner.domain.jobs.transitions import Limits
from backburner.engine.observability import telemetry
from backburner.testing.samples import NOON, a_claim


@pytest.fixture
def log():
    """What is logged at the usual level."""
    stream = io.StringIO()
    telemetry.configure(level="info", pretty=False, stream=stream)
    yield stream
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("outcome", "lines"),
    [
        pytest.param(Snooze(timedelta(seconds=1), "later"), [], id="snooze"),
        pytest.param(Failed("X", "no"), [("warning", "job retrying")], id="control"),
    ],
)
def test_a_snooze_is_nothing_to_warn_of(log, outcome, lines):
    claim = a_claim()
    change = transitions.settle(
        claim, outcome, now=NOON, backoff=timedelta(seconds=1), limits=Limits()
    )
    telemetry.settled([(claim, change)])

    told = [json.loads(line) for line in log.getvalue().splitlines()]
    assert lines == [(line["level"], line["event"]) for line in told]
