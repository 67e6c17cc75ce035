"""Creates the deployment of features in a function."""

from datetime import timedelta
from functools import cache
from typing import Any

import boto3
from botocore.config import Config

from backburner_apps.features.aws.bucket import Bucket, S3Results
from backburner_apps.features.aws.changes import Run
from backburner_apps.features.aws.clock import now
from backburner_apps.features.aws.dynamo_jobs import DynamoJobs
from backburner_apps.features.aws.jobs_table import JobsTable
from backburner_apps.features.aws.observing import CloudWatchMeter
from backburner_apps.features.aws.settings import aws_settings
from backburner_apps.features.aws.uploads import S3Files
from backburner_apps.features.core.ports import Deployment, Model, NoModel
from backburner_apps.features.core.records import Retention

_CONFIG = Config(
    retries={"mode": "standard", "max_attempts": 4},
    connect_timeout=3,
    read_timeout=20,
)


@cache
def client(service: str) -> Any:
    """Return a client of an AWS service, one per execution environment."""
    is_s3 = service == "s3"
    config = _CONFIG.merge(Config(signature_version="s3v4")) if is_s3 else _CONFIG
    return boto3.client(service, config=config)


@cache
def table() -> JobsTable:
    """Return the table of job records."""
    resource = boto3.resource("dynamodb", config=_CONFIG)
    return JobsTable(resource.Table(aws_settings().jobs_table_name))


@cache
def bucket() -> Bucket:
    """Return the bucket."""
    return Bucket(client("s3"), aws_settings().results_bucket_name)


def retention() -> Retention:
    """Return how long records are kept."""
    settings = aws_settings()
    completed = timedelta(days=settings.completed_days)
    return Retention(completed, timedelta(days=settings.failed_days))


def jobs_of(run: Run | None = None, key: str | None = None) -> DynamoJobs:
    """
    Return access to job records, for a run of a worker or for the API.

    `key` is the idempotency key of a job that the API creates.
    """
    return DynamoJobs(table(), bucket(), now, send, run, retention(), key)


def deployment_of(jobs: DynamoJobs, model: Model | None = None) -> Deployment:
    """Return the deployment for a feature."""
    return Deployment(
        jobs=jobs,
        results=S3Results(bucket()),
        meter=CloudWatchMeter(),
        now=now,
        model=model or NoModel(),
        files=S3Files(bucket()),
        retention=retention(),
    )


def send(body: str) -> None:
    """Send a message to the queue."""
    client("sqs").send_message(QueueUrl=aws_settings().queue_url, MessageBody=body)
