"""Metrics and log keys of applications: bounded, and registered once."""

import io
import json

import prometheus_client
import pytest
import structlog

from backburner import (
    App,
    Backburner,
    ConfigurationError,
    Counter,
    Gauge,
    Histogram,
    Operations,
)
from backburner.engine.observability import app_metrics, telemetry
from backburner.ports import log as logs
from backburner.ports.log import log


@pytest.fixture
def registered(monkeypatch):
    """Register metrics in a registry of the test's own."""
    registry = prometheus_client.CollectorRegistry()
    monkeypatch.setattr(telemetry, "registry", registry)
    monkeypatch.setattr(app_metrics, "_registered", set())

    def register(*metrics):
        app_metrics.register("songs", metrics)
        return registry

    return register


def test_a_metric_is_registered_once_however_often_it_is_loaded(registered):
    sung = Counter("songs_sung_total", "Songs.", ["singer"])
    registered(sung)
    registry = registered(sung)
    sung.labels("choir").inc()
    sung.labels(singer="choir").inc()

    assert 2 == registry.get_sample_value("songs_sung_total", {"singer": "choir"})


def test_every_kind_is_bounded_by_its_number_of_series(registered, monkeypatch):
    monkeypatch.setattr(app_metrics, "MOST_SERIES", 3)
    sung = Counter("songs_sung_total", "Songs.", ["singer", "song"])
    queue = Gauge("songs_waiting", "Songs.", ["singer"])
    took = Histogram("songs_seconds", "Time.", ["singer"], buckets=[1, 5])
    registry = registered(sung, queue, took)

    for number in range(50):
        sung.labels(f"singer {number}", "one").inc()
        queue.labels(f"singer {number}").set(number)
        took.labels(f"singer {number}").observe(2)

    others = {"singer": "others", "song": "others"}
    assert 47 == registry.get_sample_value("songs_sung_total", others)
    assert 49 == registry.get_sample_value("songs_waiting", {"singer": "others"})
    assert 47 == registry.get_sample_value(
        "songs_seconds_bucket", {"singer": "others", "le": "5.0"}
    )
    first = {"singer": "singer 0", "song": "one"}
    assert 1 == registry.get_sample_value("songs_sung_total", first)


def test_operations_are_counted_by_result_when_they_have_ended(registered):
    operations = Operations("songs")
    registry = registered(*operations)
    for ends in (True, False):
        with operations.counted("sing", ends=ends):
            pass
        with (
            pytest.raises(LookupError),
            operations.counted("sing", ends=ends),
        ):
            raise LookupError
    operations.count("sing", -1.0, is_good=True)

    def value(name, **labels):
        return registry.get_sample_value(name, {"operation": "sing", **labels})

    assert 2 == value("songs_operations_total", result="success")
    assert 2 == value("songs_operations_total", result="failure")
    assert 4 == value("songs_operation_seconds_count")
    assert value("songs_operation_seconds_sum") >= 0, "a clock that was set back"


def test_a_long_label_value_is_cut(registered):
    sung = Counter("songs_sung_total", "Songs.", ["singer"])
    registry = registered(sung)
    sung.labels("x" * 5_000).inc()

    assert 1 == registry.get_sample_value("songs_sung_total", {"singer": "x" * 100})


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        (lambda: Counter("backburner_songs", "Songs."), "must not begin with"),
        (lambda: Counter("songs_taken_total", "Songs."), "another metric is named"),
        (
            lambda: prometheus_client.Gauge("songs_raw", "Songs.", registry=None),
            "use Counter, Gauge or Histogram of backburner",
        ),
    ],
)
def test_a_metric_that_cannot_be_taken_refuses_the_start(registered, metric, told):
    registered(Counter("songs_taken_total", "Songs."))

    with pytest.raises(ConfigurationError, match=rf"^application 'songs': .*{told}"):
        registered(metric())


@pytest.fixture
def written(monkeypatch):
    """Return the log lines that were written since."""
    monkeypatch.setattr(logs, "_of_apps", set())
    stream = io.StringIO()
    telemetry.configure(level="info", pretty=False, stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    structlog.reset_defaults()


def test_only_the_keys_that_an_application_declares_are_logged(written, tmp_path):
    log.info("before", songCount=1)
    app = App("songs", log_keys=["songCount", "singer", "songs"])
    Backburner(store=f"sqlite:///{tmp_path}/jobs.db", apps=[app])
    dropped = telemetry.log_keys_dropped._value.get()
    log.info("sung", songCount=1, singer="a\nb" * 200, songs=["text"], lyrics="la")
    before, after = written()

    assert "songCount" not in before
    assert (1, "list") == (after["songCount"], after["songs"])
    assert ("a?ba?b", 200) == (after["singer"][:6], len(after["singer"]))
    assert "lyrics" not in after
    assert 1 == telemetry.log_keys_dropped._value.get() - dropped


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("key", ["", "a b", "1st", "x" * 65, "la-la", "key\n"])
def test_a_log_key_that_is_no_name_refuses_the_start(tmp_path, key):
    with pytest.raises(ConfigurationError, match="application 'songs': the log key"):
        Backburner(
            store=f"sqlite:///{tmp_path}/jobs.db", apps=[App("songs", log_keys=[key])]
        )
