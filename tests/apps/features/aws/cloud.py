"""AWS as moto plays it: table, queues and bucket of one test, and who drives them."""

import json
import secrets
from dataclasses import dataclass, field

import boto3
import httpx2

from backburner_apps.features.aws import deployment, status, submit, upload, worker
from backburner_apps.features.aws.settings import aws_settings
from backburner_apps.features.core.naming import NamingUtils

CV = "Ada Lovelace. Ten years of Python and PostgreSQL."
POSTING = "We need Python, Kubernetes and Terraform."
REQUEST = {"user_cv": CV, "job_posting": POSTING}
ADA, BOB = "0f1e-ada", "0f1e-bob"
REGION = "eu-west-1"


@dataclass
class Context:
    """What Lambda hands a function besides the event."""

    function_name: str = "features"
    memory_limit_in_mb: int = 1024
    invoked_function_arn: str = f"arn:aws:lambda:{REGION}:1:function:features"
    aws_request_id: str = field(default_factory=lambda: secrets.token_hex(8))

    def get_remaining_time_in_millis(self):
        return 900_000


class Cloud:
    """The resources of one test; what stacks would make, made by hand."""

    def __init__(self, monkeypatch, endpoint):
        self.environment = secrets.token_hex(4)
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        self.set_environment(monkeypatch)
        self.s3, self.sqs = boto3.client("s3"), boto3.client("sqs")
        self.dynamodb = boto3.client("dynamodb")
        self.dlq_url, dlq = self._queue("dlq_name")
        redrive = {"deadLetterTargetArn": dlq, "maxReceiveCount": 3}
        self.queue_url, _ = self._queue(
            "queue_name", VisibilityTimeout="900", RedrivePolicy=json.dumps(redrive)
        )
        self.bucket = NamingUtils.bucket_name(self.environment, "1")
        self.s3.create_bucket(
            Bucket=self.bucket,
            CreateBucketConfiguration={"LocationConstraint": REGION},
        )
        self.table = NamingUtils.table_name(self.environment)
        monkeypatch.setenv("JOBS_TABLE_NAME", self.table)
        monkeypatch.setenv("QUEUE_URL", self.queue_url)
        monkeypatch.setenv("RESULTS_BUCKET_NAME", self.bucket)

    def make_table(self, *, with_index=True):
        names = ["pk", "sk"] + ["gsi1pk", "gsi1sk"] * with_index
        keys = [
            {"AttributeName": name, "KeyType": kind}
            for name, kind in zip(names, ["HASH", "RANGE"] * 2, strict=False)
        ]
        index = {
            "IndexName": "gsi1",
            "KeySchema": keys[2:],
            "Projection": {"ProjectionType": "ALL"},
        }
        self.dynamodb.create_table(
            TableName=self.table,
            KeySchema=keys[:2],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": "S"} for name in names
            ],
            BillingMode="PAY_PER_REQUEST",
            **({"GlobalSecondaryIndexes": [index]} if with_index else {}),
        )

    def submit(self, body=None, user=ADA, feature="gap-analysis", **headers):
        body = REQUEST if body is None else body
        path = f"/api/{feature}/submit"
        return self.call(submit.handler, "POST", path, user, body, **headers)

    def submitted(self, body=None, user=ADA, feature="gap-analysis"):
        answer = self.submit(body, user, feature)
        assert 202 == answer.status, answer.body
        return answer.body["job_id"]

    def status(self, job_id, user=ADA, feature="gap-analysis"):
        path = f"/api/{feature}/status/{job_id}"
        return self.call(status.handler, "GET", path, user)

    def cancel(self, job_id, user=ADA, feature="gap-analysis"):
        path = f"/api/{feature}/cancel/{job_id}"
        return self.call(submit.handler, "POST", path, user)

    def listed(self, user=ADA, path="/api/jobs"):
        return self.call(status.handler, "GET", path, user)

    def upload(self, body, user=ADA, feature="gap-analysis"):
        path = f"/api/{feature}/uploads"
        return self.call(upload.handler, "POST", path, user, body)

    def call(self, handler, method, path, user, body=None, **headers):
        text = body if isinstance(body, str) or body is None else json.dumps(body)
        answer = handler(api_event(method, path, user, text, **headers), Context())
        return Answer(
            answer["statusCode"],
            json.loads(answer["body"]),
            answer["multiValueHeaders"],
        )

    def receive(self, queue=None, *, seconds=0, most=1):
        """Return messages as SQS hands them to Lambda."""
        got = self.sqs.receive_message(
            QueueUrl=queue or self.queue_url,
            AttributeNames=["All"],
            MaxNumberOfMessages=most,
            WaitTimeSeconds=seconds,
        )
        return [sqs_record(message) for message in got.get("Messages", [])]

    def work(self, records=None):
        """Have the worker process messages as Lambda would; return what it answers."""
        records = self.receive() if records is None else records
        answer = worker.handler({"Records": records}, Context())
        failed = {item["itemIdentifier"] for item in answer["batchItemFailures"]}
        for record in records:
            if record["messageId"] not in failed:
                self.sqs.delete_message(
                    QueueUrl=self.queue_url, ReceiptHandle=record["receiptHandle"]
                )
        return failed

    def show(self, record):
        """Have a message delivered at once instead of after its delay."""
        self.sqs.change_message_visibility(
            QueueUrl=self.queue_url,
            ReceiptHandle=record["receiptHandle"],
            VisibilityTimeout=0,
        )

    def item(self, job_id):
        key = {"pk": {"S": f"JOB#{job_id}"}, "sk": {"S": "METADATA"}}
        return self.dynamodb.get_item(TableName=self.table, Key=key)["Item"]

    def change(self, job_id, **attributes):
        """Change an item behind the functions' backs."""
        resource = boto3.resource("dynamodb").Table(self.table)
        resource.update_item(
            Key={"pk": f"JOB#{job_id}", "sk": "METADATA"},
            AttributeUpdates={
                name: {"Value": value, "Action": "PUT"}
                for name, value in attributes.items()
            },
        )

    def objects(self):
        listed = self.s3.list_objects_v2(Bucket=self.bucket)
        return [item["Key"] for item in listed.get("Contents", [])]

    def _queue(self, kind, **attributes):
        name = getattr(NamingUtils, kind)("features", self.environment)
        url = self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        wanted = {"QueueUrl": url, "AttributeNames": ["QueueArn"]}
        got = self.sqs.get_queue_attributes(**wanted)
        return url, got["Attributes"]["QueueArn"]

    @staticmethod
    def set_environment(monkeypatch):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
        monkeypatch.setenv("BACKBURNER_AI", "mock")
        for made in (
            aws_settings,
            deployment.client,
            deployment.table,
            deployment.bucket,
        ):
            made.cache_clear()


@dataclass
class Answer:
    """What a function behind the API answered."""

    status: int
    body: dict
    headers: dict


def api_event(method, path, user, body=None, **headers):
    """Return an event as API Gateway writes it, with Cognito's claims."""
    claims = {"sub": user, "token_use": "id"} if user else {}
    return {
        "resource": "/api/{proxy+}",
        "path": path,
        "httpMethod": method,
        "headers": {"Accept": "application/json", **headers},
        "multiValueHeaders": {
            "Accept": ["application/json"],
            **{name: [value] for name, value in headers.items()},
        },
        "queryStringParameters": None,
        "multiValueQueryStringParameters": None,
        "pathParameters": None,
        "stageVariables": None,
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "api",
            "authorizer": {"claims": claims},
            "httpMethod": method,
            "identity": {"sourceIp": "192.0.2.1", "userAgent": "test"},
            "path": f"/dev{path}",
            "protocol": "HTTP/1.1",
            "requestId": secrets.token_hex(8),
            "requestTime": "18/Nov/2026:07:00:00 +0000",
            "requestTimeEpoch": 1_794_985_200_000,
            "resourceId": "r",
            "resourcePath": "/api/{proxy+}",
            "stage": "dev",
        },
        "body": body,
        "isBase64Encoded": False,
    }


def sqs_record(message):
    """Return a received message as a record of Lambda's event."""
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": {},
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:{REGION}:123456789012:features",
        "awsRegion": REGION,
    }


def fetched(url):
    """Fetch a signed URL as a browser would."""
    return httpx2.get(url, trust_env=False)
