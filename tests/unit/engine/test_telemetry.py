import io
import json
from datetime import timedelta

import pytest
import structlog

from backburner.domain.jobs import transitions
from backburner.domain.jobs.outcome import Failed, Snooze, Trace
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


@pytest.mark.parametrize("attempts", [pytest.param(3, id="retry"), 1])
def test_the_line_of_an_exception_has_its_type_and_place_but_not_its_message(
    log, attempts
):
    trace = Trace('  File "/a/b/orders.py", line 7\nKeyError\n', "b/orders.py:7")
    failed = Failed("UNEXPECTED", "KeyError: 'a name'", trace=trace)
    claim = a_claim(max_attempts=attempts)
    change = transitions.settle(
        claim, failed, now=NOON, backoff=timedelta(seconds=1), limits=Limits()
    )

    telemetry.settled([(claim, change)])

    told = json.loads(log.getvalue())
    assert ("KeyError", "b/orders.py:7") == (told["error_type"], told["place"])
    assert "a name" not in log.getvalue()


@pytest.mark.parametrize("message", ["KeyError: 'a name'", "'a name'"])
def test_a_developer_sees_the_trace_and_the_message_with_its_type_once(
    log, monkeypatch, message
):
    monkeypatch.setattr(telemetry, "_traces", None)  # restored after the test
    console = io.StringIO()
    telemetry.show_traces(console)
    failed = Failed("X", message, trace=Trace("  File\nKeyError\n", "orders.py:7"))
    change = transitions.settle(
        a_claim(), failed, now=NOON, backoff=timedelta(seconds=1), limits=Limits()
    )

    telemetry.settled([(a_claim(), change)])

    assert "  File\nKeyError: 'a name'\n" == console.getvalue()
    assert "a name" not in log.getvalue()


def test_a_message_cannot_control_the_developers_terminal(log, monkeypatch):
    monkeypatch.setattr(telemetry, "_traces", None)  # restored after the test
    console = io.StringIO()
    telemetry.show_traces(console)
    failed = Failed(
        "X", "\x1b[2J\x9bKone\n\ttwo\r", trace=Trace("  File\nE\n", "o.py:7")
    )
    change = transitions.settle(
        a_claim(), failed, now=NOON, backoff=timedelta(seconds=1), limits=Limits()
    )

    telemetry.settled([(a_claim(), change)])

    assert "  File\nE:  [2J Kone\n\ttwo \n" == console.getvalue()
    assert "" != log.getvalue()
