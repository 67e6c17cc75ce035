"""The cloud that these tests run on: the moto server that the S3 tests have."""

import io
from datetime import timedelta

import pytest

from backburner_apps.features.aws import clock, deployment
from backburner_apps.features.aws.observing import logger
from tests.apps.features.aws.cloud import Cloud


@pytest.fixture
def cloud(monkeypatch, s3_endpoint):
    """Queues, a bucket and a table of one test."""
    made = Cloud(monkeypatch, s3_endpoint)
    made.make_table()
    return made


@pytest.fixture
def bare_cloud(monkeypatch, s3_endpoint):
    """The same without a table."""
    return Cloud(monkeypatch, s3_endpoint)


@pytest.fixture
def logged(monkeypatch):
    """What the functions log."""
    stream = io.StringIO()
    for handler in logger.handlers:
        monkeypatch.setattr(handler, "stream", stream)
    return stream


@pytest.fixture
def delays(cloud):  # noqa: ARG001 - its client is hooked into
    """The seconds for which the worker hides messages, as SQS is told."""
    told = []
    deployment.client("sqs").meta.events.register(
        "provide-client-params.sqs.ChangeMessageVisibility",
        lambda params, **_: told.append(params["VisibilityTimeout"]),
    )
    return told


@pytest.fixture
def later(monkeypatch):
    """Moves the functions' clock."""

    def move(**span):
        moved = timedelta(**span)
        monkeypatch.setattr(deployment, "now", lambda: clock.now() + moved)

    return move
