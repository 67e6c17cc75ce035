"""A stack in moto's CloudFormation, in this process, as far as moto knows its types."""

import io
import json
import zipfile

import boto3

from tests.apps.features.aws.cloud import REGION, Cloud

NAME = "backburner-features-dev"
BOOTSTRAP = "hnb659fds"
"""CDK's default name for what `cdk bootstrap` makes."""
UNKNOWN = {
    *("AWS::ApiGateway::Authorizer", "AWS::ApiGateway::GatewayResponse"),
    *("AWS::ApiGateway::Stage", "AWS::CloudWatch::Alarm", "AWS::Cognito::UserPool"),
    *("AWS::Cognito::UserPoolClient", "AWS::S3::BucketPolicy"),
    *("AWS::SNS::TopicPolicy", "AWS::SQS::QueuePolicy"),
}
"""Types that moto's CloudFormation passes over."""


class Deployed(Cloud):
    """The resources that a template makes."""

    def __init__(self, monkeypatch, template):
        self.set_environment(monkeypatch)
        self.template = _deployable(template)
        self.types = set(self._deploy())
        [worker] = self.functions("worker")
        told = worker["Environment"]["Variables"]
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("BACKBURNER_AI", "mock")
        monkeypatch.delenv("MODEL_SECRET_NAME")
        self.s3, self.sqs = boto3.client("s3"), boto3.client("sqs")
        self.dynamodb = boto3.client("dynamodb")
        self.queue_url, self.table = told["QUEUE_URL"], told["JOBS_TABLE_NAME"]
        self.bucket = told["RESULTS_BUCKET_NAME"]

    def functions(self, kind):
        found = boto3.client("lambda").list_functions()["Functions"]
        return [one for one in found if f"-{kind}-" in one["FunctionName"]]

    def _deploy(self):
        bucket = f"cdk-{BOOTSTRAP}-assets-123456789012-{REGION}"
        s3, client = boto3.client("s3"), boto3.client("cloudformation")
        where = {"LocationConstraint": REGION}
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration=where)
        for key in _archives(self.template):
            s3.put_object(Bucket=bucket, Key=key, Body=_small_archive())
        boto3.client("ssm").put_parameter(
            Name=f"/cdk-bootstrap/{BOOTSTRAP}/version", Value="30", Type="String"
        )
        client.create_stack(
            StackName=NAME,
            TemplateBody=json.dumps(self.template),
            Capabilities=["CAPABILITY_IAM"],
        )
        pages = client.get_paginator("list_stack_resources").paginate(StackName=NAME)
        for page in pages:
            for one in page["StackResourceSummaries"]:
                yield one["ResourceType"]


def _deployable(template):
    """
    Leave out what moto cannot do.

    It cannot read methods that API Gateway answers itself, and it would start the
    worker in a container for each message.
    """
    found = template["Resources"]
    gone = {
        key
        for key, one in found.items()
        if one["Type"] == "AWS::Lambda::EventSourceMapping"
        or one["Properties"].get("HttpMethod") == "OPTIONS"
    }
    kept = {key: dict(one) for key, one in found.items() if key not in gone}
    for one in kept.values():
        if isinstance(one.get("DependsOn"), list):
            one["DependsOn"] = [name for name in one["DependsOn"] if name not in gone]
    return {**template, "Resources": kept}


def _archives(template):
    for one in template["Resources"].values():
        where = one["Properties"].get("Code") or one["Properties"].get("Content")
        if one["Type"].startswith("AWS::Lambda") and where:
            yield where["S3Key"]


def _small_archive():
    """Return an archive in place of the true one: moto starts no function."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        packed.writestr("empty.py", "")
    return content.getvalue()
