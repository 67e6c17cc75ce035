"""Durations are counted as the metrics library itself would count them."""

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from backburner.engine.observability.durations import Durations

BOUNDS = (0.001, 0.5, 1, 60)
SEEN = (0.0, 0.001, 0.0011, 0.5, 3.0, 60.0, 61.0)


def lines_of(registry):
    written = generate_latest(registry).decode().splitlines()
    return [line for line in written if "_created" not in line]


def test_the_page_reads_as_if_the_library_had_counted():
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("t", "A time.", ["queue"], buckets=BOUNDS, registry=theirs)
    durations = Durations("t", "A time.", "queue", BOUNDS)
    ours.register(durations)

    for seconds in SEEN:
        histogram.labels("a").observe(seconds)
        durations.observe("a", seconds)
    durations.observe("b", 2.0)
    histogram.labels("b").observe(2.0)

    assert lines_of(theirs) == lines_of(ours)


def test_what_was_never_seen_has_no_lines():
    registry = CollectorRegistry()

    registry.register(Durations("t", "A time.", "queue", BOUNDS))

    assert ["# HELP t A time.", "# TYPE t histogram"] == lines_of(registry)
