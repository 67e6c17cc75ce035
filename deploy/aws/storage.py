"""The resources with data: the table, the bucket, the queue and its dead letters."""

from typing import Final

from aws_cdk import Aws, Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct
from deploy.aws.environments import Environment

from backburner_apps.features.aws import bucket, items
from backburner_apps.features.core.naming import NamingUtils
from backburner_apps.features.core.retrying import MAX_RECEIVES

GROUP: Final = "features"
"""One queue and one set of functions serve all features."""
VISIBILITY: Final = Duration.seconds(900)
RETENTION: Final = Duration.days(7)
DEAD_LETTERS: Final = Duration.days(14)
EXPIRY: Final = {
    bucket.RESULTS: RETENTION,
    bucket.REQUESTS: DEAD_LETTERS,
    bucket.UPLOADS: DEAD_LETTERS,
}
"""Retention of objects by prefix, long enough to retry a dead letter."""


class Storage(Construct):
    """The stateful part of a stack."""

    def __init__(self, scope: Construct, environment: Environment) -> None:
        super().__init__(scope, "Storage")
        self.table = _table(self, environment)
        self.bucket = _bucket(self, environment)
        self.dead_letters = _dead_letters(self, environment)
        self.queue = _queue(self, environment, self.dead_letters)


def _table(scope: Construct, environment: Environment) -> dynamodb.ITable:
    if environment.table_name:
        return dynamodb.Table.from_table_attributes(
            scope,
            "Jobs",
            table_name=environment.table_name,
            global_indexes=[items.INDEX],
        )
    table = dynamodb.Table(
        scope,
        "Jobs",
        table_name=NamingUtils.table_name(environment.name),
        partition_key=_text("pk"),
        sort_key=_text("sk"),
        time_to_live_attribute="ttl",
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=environment.is_production
        ),
        removal_policy=_removal(environment),
    )
    table.add_global_secondary_index(
        index_name=items.INDEX,
        partition_key=_text("gsi1pk"),
        sort_key=_text("gsi1sk"),
        projection_type=dynamodb.ProjectionType.INCLUDE,
        non_key_attributes=list(items.LISTED),
    )
    return table


def _bucket(scope: Construct, environment: Environment) -> s3.Bucket:
    origins = list(environment.cors_origins)
    methods = [s3.HttpMethods.GET, s3.HttpMethods.PUT]
    cors = s3.CorsRule(
        allowed_origins=origins,
        allowed_methods=methods,
        allowed_headers=["*"],
        exposed_headers=["ETag"],
        max_age=3600,
    )
    return s3.Bucket(
        scope,
        "Results",
        bucket_name=NamingUtils.bucket_name(environment.name, Aws.ACCOUNT_ID),
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        encryption=s3.BucketEncryption.S3_MANAGED,
        enforce_ssl=True,
        cors=[cors] if origins else None,
        lifecycle_rules=[_expiry(prefix, after) for prefix, after in EXPIRY.items()],
        removal_policy=RemovalPolicy.RETAIN,
    )


def _expiry(prefix: str, after: Duration) -> s3.LifecycleRule:
    return s3.LifecycleRule(
        prefix=prefix,
        expiration=after,
        abort_incomplete_multipart_upload_after=Duration.days(1),
    )


def _dead_letters(scope: Construct, environment: Environment) -> sqs.Queue:
    return sqs.Queue(
        scope,
        "DeadLetters",
        queue_name=NamingUtils.dlq_name(GROUP, environment.name),
        retention_period=DEAD_LETTERS,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        removal_policy=_removal(environment),
    )


def _queue(scope: Construct, environment: Environment, dead: sqs.Queue) -> sqs.Queue:
    return sqs.Queue(
        scope,
        "Jobs-Queue",
        queue_name=NamingUtils.queue_name(GROUP, environment.name),
        visibility_timeout=VISIBILITY,
        retention_period=RETENTION,
        dead_letter_queue=sqs.DeadLetterQueue(
            queue=dead, max_receive_count=MAX_RECEIVES
        ),
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        removal_policy=_removal(environment),
    )


def _removal(environment: Environment) -> RemovalPolicy:
    keep = environment.is_production
    return RemovalPolicy.RETAIN if keep else RemovalPolicy.DESTROY


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
