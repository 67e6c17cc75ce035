"""The stacks: what is in the templates, and what moto makes of one."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from deploy.aws.assets import LIMIT, layer_folder, unzipped_size
from moto import mock_aws

from backburner_apps.features.core.naming import NamingUtils
from tests.apps.features.aws.moto_stack import UNKNOWN, Deployed
from tests.apps.features.aws.stacks import Stacks, node

IMPORTS = """
import importlib
for name in ("submit", "status", "upload", "worker"):
    importlib.import_module(f"backburner_apps.features.aws.{name}")
for name in ("openai", "docx", "pypdfium2", "backburner_extractors", "orjson"):
    importlib.import_module(name)
from backburner import open_asker
from backburner.ai import mock, openai
"""

pytestmark = pytest.mark.one_store
ENVIRONMENTS = pytest.mark.parametrize("name", ["dev", "prod"])


@pytest.fixture(scope="module")
def stacks(tmp_path_factory):
    """The stacks of both environments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JSII_NODE", node())
        yield Stacks(tmp_path_factory.mktemp("cdk") / "out")


@pytest.fixture(scope="module")
def template(stacks):
    """Makes a template that CDK's own assertions understand."""
    from aws_cdk.assertions import Template  # noqa: PLC0415 - Node must be set

    made = {}

    def of(name):
        if name not in made:
            made[name] = Template.from_json(stacks.template(name))
        return made[name]

    return of


def python_3_12():
    """Return a Python of the version that Lambda has, if this machine has one."""
    places = [
        shutil.which("python3.12"),
        *Path.home().glob(".pyenv/versions/3.12*/bin/python3.12"),
    ]
    for place in filter(None, places):
        asked = subprocess.run([place, "-c", ""], capture_output=True, check=False)
        if asked.returncode == 0:
            return str(place)
    return None


def of_type(stacks, name, kind):
    found = stacks.template(name)["Resources"]
    return {key: one for key, one in found.items() if one["Type"] == kind}


@ENVIRONMENTS
def test_the_table_has_the_keys_an_index_and_a_time_to_live(template, name):
    template(name).has_resource_properties(
        "AWS::DynamoDB::Table",
        {
            "TableName": NamingUtils.table_name(name),
            "KeySchema": [
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            "GlobalSecondaryIndexes": [
                {
                    "IndexName": "gsi1",
                    "KeySchema": [
                        {"AttributeName": "gsi1pk", "KeyType": "HASH"},
                        {"AttributeName": "gsi1sk", "KeyType": "RANGE"},
                    ],
                }
            ],
            "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": True},
        },
    )


@ENVIRONMENTS
def test_the_queue_has_a_dead_letter_queue(template, name):
    day = 24 * 3600
    template(name).has_resource_properties(
        "AWS::SQS::Queue",
        {
            "QueueName": NamingUtils.queue_name("features", name),
            "VisibilityTimeout": 900,
            "MessageRetentionPeriod": 7 * day,
            "RedrivePolicy": {"maxReceiveCount": 3},
        },
    )
    template(name).has_resource_properties(
        "AWS::SQS::Queue",
        {
            "QueueName": NamingUtils.dlq_name("features", name),
            "MessageRetentionPeriod": 14 * day,
        },
    )


@ENVIRONMENTS
def test_the_bucket_expires_objects_and_serves_pages(stacks, name):
    [bucket] = of_type(stacks, name, "AWS::S3::Bucket").values()
    found = bucket["Properties"]
    rules = found["LifecycleConfiguration"]["Rules"]

    assert {"jobs/": 7, "requests/": 14, "uploads/": 14} == {
        rule["Prefix"]: rule["ExpirationInDays"] for rule in rules
    }
    [cors] = found["CorsConfiguration"]["CorsRules"]
    assert ["GET", "PUT"] == cors["AllowedMethods"]
    assert "*" not in cors["AllowedOrigins"]
    assert all(found["PublicAccessBlockConfiguration"].values())


@ENVIRONMENTS
@pytest.mark.parametrize(
    ("function", "seconds", "memory"),
    [
        ("submit", 30, 512),
        ("status", 30, 512),
        ("upload", 30, 512),
        ("worker", 900, 1024),
    ],
)
def test_functions_have_their_limits(template, name, function, seconds, memory):
    template(name).has_resource_properties(
        "AWS::Lambda::Function",
        {
            "FunctionName": NamingUtils.lambda_name(f"features-{function}", name),
            "Handler": f"backburner_apps.features.aws.{function}.handler",
            "Runtime": "python3.12",
            "Timeout": seconds,
            "MemorySize": memory,
            "TracingConfig": {"Mode": "Active"},
        },
    )


@ENVIRONMENTS
def test_functions_are_told_what_they_need_and_log_no_events(stacks, name):
    functions = of_type(stacks, name, "AWS::Lambda::Function").values()
    told = [one["Properties"]["Environment"]["Variables"] for one in functions]

    assert 4 == len(told)
    for one in told:
        assert {"JOBS_TABLE_NAME", "QUEUE_URL", "RESULTS_BUCKET_NAME"} < set(one)
        assert "false" == one["POWERTOOLS_LOGGER_LOG_EVENT"]
        assert "false" == one["POWERTOOLS_TRACER_CAPTURE_RESPONSE"]
        assert f"features-{name}" == one["POWERTOOLS_SERVICE_NAME"]


def statements(stacks, name):
    """Return what each function's role may do, by the function's name."""
    found = {}
    for policy in of_type(stacks, name, "AWS::IAM::Policy").values():
        [role] = policy["Properties"]["Roles"]
        kind = role["Ref"].removeprefix("Functions").partition("Role")[0].lower()
        found[kind] = policy["Properties"]["PolicyDocument"]["Statement"]
    return found


def actions(statement):
    found = statement["Action"]
    return [found] if isinstance(found, str) else found


EVERY = {
    *("logs:CreateLogStream", "logs:PutLogEvents"),
    *("xray:PutTelemetryRecords", "xray:PutTraceSegments"),
}
MAY = {
    "submit": {
        *("dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"),
        *("s3:ListBucket", "s3:PutObject", "sqs:SendMessage"),
    },
    "status": {"dynamodb:GetItem", "dynamodb:Query", "s3:GetObject"},
    "upload": {"s3:PutObject"},
    "worker": {
        *("dynamodb:GetItem", "dynamodb:UpdateItem"),
        *("s3:ListBucket", "s3:GetObject", "s3:PutObject"),
        *("secretsmanager:DescribeSecret", "secretsmanager:GetSecretValue"),
        *("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:ReceiveMessage"),
        *("sqs:GetQueueAttributes", "sqs:GetQueueUrl"),
    },
}


@ENVIRONMENTS
def test_each_function_may_do_what_it_does_and_no_more(stacks, name):
    found = statements(stacks, name)

    assert MAY == {
        function: {action for one in listed for action in actions(one)} - EVERY
        for function, listed in found.items()
    }
    for listed in found.values():
        for one in listed:
            is_tracing = actions(one)[0].startswith("xray:")
            assert ("*" == one["Resource"]) == is_tracing, "tracing has no resources"
    for role in of_type(stacks, name, "AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role["Properties"]


@ENVIRONMENTS
@pytest.mark.parametrize(
    ("function", "action", "prefixes"),
    [
        ("submit", "s3:PutObject", ["requests/*"]),
        ("status", "s3:GetObject", ["jobs/*"]),
        ("upload", "s3:PutObject", ["uploads/*"]),
        ("worker", "s3:GetObject", ["requests/*", "uploads/*"]),
        ("worker", "s3:PutObject", ["jobs/*"]),
    ],
)
def test_functions_reach_their_own_objects_only(
    stacks, name, function, action, prefixes
):
    listed = statements(stacks, name)[function]
    [granted] = [one["Resource"] for one in listed if [action] == actions(one)]
    granted = granted if isinstance(granted, list) else [granted]

    ends = [arn["Fn::Join"][1][-1] for arn in granted]
    assert [f"/{prefix}" for prefix in prefixes] == ends


@ENVIRONMENTS
def test_the_worker_takes_one_message_at_a_time_and_reports_failures(template, name):
    template(name).has_resource_properties(
        "AWS::Lambda::EventSourceMapping",
        {
            "BatchSize": 1,
            "MaximumBatchingWindowInSeconds": 0,
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
        },
    )


@ENVIRONMENTS
def test_every_route_is_under_api_and_needs_a_user(stacks, name):
    resources = of_type(stacks, name, "AWS::ApiGateway::Resource")

    def path(key):
        one = resources[key]["Properties"]
        parent = one["ParentId"].get("Ref")
        return (path(parent) if parent else "") + "/" + one["PathPart"]

    methods = [
        one["Properties"]
        for one in of_type(stacks, name, "AWS::ApiGateway::Method").values()
    ]
    routes = {
        (one["HttpMethod"], path(one["ResourceId"]["Ref"]))
        for one in methods
        if one["HttpMethod"] != "OPTIONS"
    }
    assert {
        ("POST", "/api/{feature}/submit"),
        ("POST", "/api/{feature}/cancel/{job_id}"),
        ("GET", "/api/{feature}/status/{job_id}"),
        ("GET", "/api/{feature}/jobs"),
        ("GET", "/api/jobs"),
        ("POST", "/api/{feature}/uploads"),
    } == routes
    for one in methods:
        kind = "NONE" if one["HttpMethod"] == "OPTIONS" else "COGNITO_USER_POOLS"
        assert kind == one["AuthorizationType"]


@ENVIRONMENTS
@pytest.mark.parametrize(
    ("rule", "threshold"),
    [("dead-letters", 0), ("worker-errors", 5), ("slow-processing", 600)],
)
def test_each_alert_rule_has_an_alarm(template, name, rule, threshold):
    template(name).has_resource_properties(
        "AWS::CloudWatch::Alarm",
        {
            "AlarmName": NamingUtils.alarm_name(rule, name),
            "ComparisonOperator": "GreaterThanThreshold",
            "Threshold": threshold,
            "TreatMissingData": "notBreaching",
        },
    )


def test_there_are_three_alarms_and_each_is_sent_to_the_topic(stacks, template):
    template("prod").resource_count_is("AWS::CloudWatch::Alarm", 3)
    for alarm in of_type(stacks, "prod", "AWS::CloudWatch::Alarm").values():
        assert 1 == len(alarm["Properties"]["AlarmActions"])
        assert "deploy/aws/RUNBOOK.md" in alarm["Properties"]["AlarmDescription"]


def test_data_of_production_outlives_the_stack(stacks):
    [table] = of_type(stacks, "prod", "AWS::DynamoDB::Table").values()

    assert "Retain" == table["DeletionPolicy"]
    [table] = of_type(stacks, "dev", "AWS::DynamoDB::Table").values()
    assert "Delete" == table["DeletionPolicy"]


def test_an_existing_table_and_user_pool_are_used(stacks):
    template = stacks.variant(
        table_name="old-jobs",
        user_pool_arn="arn:aws:cognito-idp:eu-west-1:1:userpool/eu-west-1_abc",
        ai="mock",
    )
    kinds = {one["Type"] for one in template["Resources"].values()}

    assert not {"AWS::DynamoDB::Table", "AWS::Cognito::UserPool"} & kinds
    assert '"JOBS_TABLE_NAME": "old-jobs"' in json.dumps(template)
    assert "table/old-jobs/index/gsi1" in json.dumps(template)
    assert "secretsmanager" not in json.dumps(template), "the mock needs no key"


@pytest.mark.thorough
def test_cfn_lint_finds_nothing(stacks):
    linter = Path(sys.executable).with_name("cfn-lint")
    templates = [str(stacks.path(name)) for name in ("dev", "prod")]
    ended = subprocess.run(
        [linter, *templates], capture_output=True, text=True, check=False
    )

    assert (0, "") == (ended.returncode, ended.stdout + ended.stderr)


@pytest.mark.thorough
def test_the_archives_are_small_enough_for_lambda(stacks):
    total = unzipped_size(*stacks.archives)

    assert 20_000_000 < unzipped_size(stacks.archives.layer), "control: it is filled"
    assert total < LIMIT == 250_000_000
    assert 2 == len(stacks.assets())
    names = zipfile.ZipFile(stacks.archives.layer).namelist()
    built = [name for name in names if ".cpython-" in name]
    assert built
    assert all("cpython-312-x86_64-linux-gnu" in name for name in built)


@pytest.mark.thorough
def test_the_archives_run_on_python_3_12_where_there_is_one(stacks, tmp_path):
    python = python_3_12()
    packages = {path.name.partition("-")[0] for path in layer_folder().glob("*/*-info")}
    assert {"boto3", "openai", "aws_lambda_powertools", "pypdfium2"} <= packages
    if python is None:
        return
    zipfile.ZipFile(stacks.archives.code).extractall(tmp_path)
    path = f"{tmp_path}:{layer_folder() / 'python'}"
    ended = subprocess.run(
        [python, "-S", "-W", "error", "-c", IMPORTS],
        env={"PYTHONPATH": path, "BACKBURNER_AI": "mock"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == ended.returncode, ended.stderr


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:Tried to parse:UserWarning")  # UNKNOWN has them
def test_moto_deploys_the_stack_and_the_functions_use_it(stacks, monkeypatch):
    with mock_aws():
        cloud = Deployed(monkeypatch, stacks.template("dev"))
        wanted = {one["Type"] for one in cloud.template["Resources"].values()}
        assert UNKNOWN == wanted - cloud.types
        job_id = cloud.submitted()
        assert set() == cloud.work()

        assert "COMPLETED" == cloud.status(job_id).body["status"]
        assert [f"jobs/gap_analysis/{job_id}/result.json"] == cloud.objects()
        assert [job_id] == [one["job_id"] for one in cloud.listed().body["items"]]
