"""
Logs, traces and metrics of the functions, by Powertools.

No event, response or exception text is logged or traced: they may contain a CV.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
    AmazonCloudWatchEMFProvider,
)

from backburner_apps.features.core.records import JobRecord, JobStatus, route_name

NAMESPACE: Final = "BackburnerFeatures"
WORKER_ERRORS: Final = "WorkerErrors"
"""Metric of failed deliveries; the function itself succeeds and reports them."""

logger = Logger()
tracer = Tracer()
metrics = Metrics(namespace=NAMESPACE)

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


def observed(handler: Handler) -> Handler:
    """Return a handler with traces, a cold-start metric and correlated log lines."""
    cold = [True]

    @wraps(handler)
    def counted(event: dict[str, Any], context: Any) -> dict[str, Any]:
        # Not by `log_metrics`: it warns about calls without any other metric.
        if cold:
            cold.clear()
            metrics.provider.add_cold_start_metric(context)
        return handler(event, context)

    traced = tracer.capture_lambda_handler(
        counted, capture_response=False, capture_error=False
    )
    logged: Handler = logger.inject_lambda_context(traced, log_event=False)
    return logged


class CloudWatchMeter:
    """Counts jobs as CloudWatch metrics, in total and by feature."""

    def submitted(self, record: JobRecord) -> None:
        count("JobsSubmitted", record.feature)

    def ended(self, record: JobRecord) -> None:
        is_completed = record.status is JobStatus.COMPLETED
        count("JobsCompleted" if is_completed else "JobsFailed", record.feature)

    def processed(self, feature: str, seconds: float) -> None:
        _measure("ProcessingDuration", feature, seconds, MetricUnit.Seconds)

    def asked(self, feature: str, seconds: float) -> None:
        _measure("LLMLatency", feature, seconds, MetricUnit.Seconds)


def count(name: str, feature: str) -> None:
    """Increase a metric by one."""
    _measure(name, feature, 1, MetricUnit.Count)


def _measure(name: str, feature: str, value: float, unit: MetricUnit) -> None:
    service = str(metrics.service)
    line = AmazonCloudWatchEMFProvider(namespace=NAMESPACE, service=service)
    line.add_metric(name, unit, value)
    # Alarms use the dimension of the whole service, people those of features.
    line.add_dimensions(service=service, feature=route_name(feature))
    line.flush_metrics()
