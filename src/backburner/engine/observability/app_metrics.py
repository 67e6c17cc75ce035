"""
Prometheus metrics that applications bring.

They are those of `prometheus_client` with two differences: the platform registers them
when a process loads the application, and the number of their series is bounded.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import prometheus_client as prometheus
from prometheus_client.metrics import MetricWrapperBase

from backburner.domain.errors import ConfigurationError
from backburner.engine.observability import telemetry

MOST_SERIES: Final = 200
"""How many combinations of label values one metric has, before `others`."""
LONGEST_VALUE: Final = 100
OTHERS: Final = "others"
RESERVED: Final = "backburner_"


class _Bounded(MetricWrapperBase):
    """Counts series after the first `MOST_SERIES` under the label `others`."""

    def __init__(
        self, name: str, documentation: str, labelnames: Iterable[str] = (), **more: Any
    ) -> None:
        # Registered by `register`: an import alone leaves nothing in the process.
        super().__init__(name, documentation, labelnames, **{"registry": None, **more})
        self._series: set[tuple[str, ...]] = set()

    def labels(self, *values: object, **named: object) -> Any:
        """Return the series with these label values, or the series `others`."""
        if named and not values and set(named) == set(self._labelnames):
            values = tuple(named[name] for name in self._labelnames)
            named = {}
        series = tuple(str(value)[:LONGEST_VALUE] for value in values)
        if series not in self._series:
            if len(self._series) >= MOST_SERIES:
                series = (OTHERS,) * len(series)
            self._series.add(series)
        return super().labels(*series, **named)


class Counter(_Bounded, prometheus.Counter):
    """A number that only grows."""


class Gauge(_Bounded, prometheus.Gauge):
    """A number that goes up and down."""


class Histogram(_Bounded, prometheus.Histogram):
    """A distribution, by buckets."""


AppMetric: TypeAlias = Counter | Gauge | Histogram
_registered: set[AppMetric] = set()


class Operations:
    """
    Counts and times operations of an application: `App(metrics=[*operations])`.

    `Operations("songs")` has `songs_operations_total{operation, result}`, where the
    result is `success` or `failure`, and `songs_operation_seconds{operation}`.
    """

    def __init__(self, application: str) -> None:
        self._total = Counter(
            f"{application}_operations_total",
            f"Operations of {application} that have ended, by result.",
            ["operation", "result"],
        )
        self._seconds = Histogram(
            f"{application}_operation_seconds",
            f"How long operations of {application} took.",
            ["operation"],
        )

    def __iter__(self) -> Iterator[AppMetric]:
        """Yield both metrics."""
        return iter((self._total, self._seconds))

    def count(self, operation: str, seconds: float, *, is_good: bool) -> None:
        """Count an operation that has ended."""
        self._total.labels(operation, "success" if is_good else "failure").inc()
        self._seconds.labels(operation).observe(max(0.0, seconds))

    @contextmanager
    def counted(self, operation: str, *, ends: bool = True) -> Iterator[None]:
        """
        Count the operation in the block; it has failed if the block raises.

        If the operation continues after the block (`ends=False`), only a failure is
        counted here: call `count` when the operation has ended.
        """
        begun, is_good = time.perf_counter(), False
        try:
            yield
            is_good = True
        finally:
            if ends or not is_good:
                seconds = time.perf_counter() - begun
                self.count(operation, seconds, is_good=is_good)


def register(app: str, metrics: Iterable[AppMetric]) -> None:
    """Register an application's metrics for `/metrics`, each once."""
    for metric in metrics:
        if not isinstance(metric, _Bounded):
            raise ConfigurationError(
                f"application {app!r}: a metric is a {type(metric).__name__}; use "
                "Counter, Gauge or Histogram of backburner, whose labels are bounded"
            )
        if metric in _registered:
            continue
        name = next(iter(metric.describe())).name
        if name.startswith(RESERVED):
            raise ConfigurationError(
                f"application {app!r}: the metric {name!r} must not begin with "
                f"{RESERVED!r}, which is the platform's own"
            )
        try:
            telemetry.registry.register(metric)
        except ValueError:
            raise ConfigurationError(
                f"application {app!r}: another metric is named {name!r}; rename one"
            ) from None
        _registered.add(metric)
