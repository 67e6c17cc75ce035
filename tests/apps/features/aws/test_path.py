"""A job's way through the functions: submit, queue, worker, status, result."""

import json

import httpx2
import pytest
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEvent, SQSEvent
from aws_lambda_powertools.utilities.parser.models import (
    APIGatewayProxyEventModel,
    SqsModel,
)

from backburner_apps.features.aws.api import api
from backburner_apps.features.aws.observing import observed
from backburner_apps.features.aws.settings import aws_settings
from tests.apps.features.aws.cloud import (
    ADA,
    BOB,
    CV,
    POSTING,
    REQUEST,
    Context,
    api_event,
    fetched,
)

pytestmark = pytest.mark.one_store


def test_a_job_is_submitted_processed_polled_and_fetched(cloud):
    answer = cloud.submit()
    job_id = answer.body["job_id"]

    assert 202 == answer.status
    assert {"job_id", "status", "created_at"} == set(answer.body)
    assert [f"/api/gap-analysis/status/{job_id}"] == answer.headers["Location"]
    assert "PENDING" == cloud.status(job_id).body["status"]

    [record] = cloud.receive()
    assert {"job_id": job_id} == json.loads(record["body"]), "the id and nothing else"
    assert set() == cloud.work([record])
    shown = cloud.status(job_id).body

    assert "COMPLETED" == shown["status"]
    assert {"started_at", "completed_at"} < set(shown)
    assert [f"jobs/gap_analysis/{job_id}/result.json"] == cloud.objects()
    result = fetched(shown["result_url"]).json()
    assert "GAP_QUESTIONS_GENERATED" == result["code"]
    assert any("Kubernetes" in asked["question"] for asked in result["questions"])
    assert [] == cloud.receive(), "the message is deleted"


def test_an_item_has_the_keys_that_the_table_is_made_for(cloud):
    answer = cloud.submit()
    job_id, item = answer.body["job_id"], cloud.item(answer.body["job_id"])

    assert f"JOB#{job_id}" == item["pk"]["S"]
    assert "METADATA" == item["sk"]["S"]
    assert f"USER#{ADA}" == item["gsi1pk"]["S"]
    assert f"JOB#gap_analysis#{answer.body['created_at']}" == item["gsi1sk"]["S"]
    assert REQUEST.items() <= json.loads(item["request"]["B"]).items()
    cloud.work()
    item = cloud.item(job_id)
    assert f"jobs/gap_analysis/{job_id}/result.json" == item["result_s3_key"]["S"]
    week = 7 * 24 * 3600
    assert int(item["ttl"]["N"]) - int(item["lease_until"]["N"]) < week


def test_a_url_of_a_result_works_for_one_hour(cloud):
    job_id = cloud.submitted()
    cloud.work()
    url = httpx2.URL(cloud.status(job_id).body["result_url"])

    assert "3600" == url.params["X-Amz-Expires"]
    assert "AWS4-HMAC-SHA256" == url.params["X-Amz-Algorithm"]


def test_another_users_job_does_not_exist(cloud):
    job_id = cloud.submitted()

    for refused in (
        cloud.status(job_id, BOB),
        cloud.cancel(job_id, BOB),
        cloud.status("7e7b8a52-0000-4000-8000-000000000000"),
        cloud.status(job_id, feature="vpr"),
    ):
        assert (404, "JOB_NOT_FOUND") == (refused.status, refused.body["code"])
    assert 200 == cloud.status(job_id).status, "control: its owner sees it"


def test_an_unknown_feature_is_answered_with_those_there_are(cloud):
    for refused in (cloud.submit(feature="magic"), cloud.status("x", feature="magic")):
        assert (404, "UNKNOWN_FEATURE") == (refused.status, refused.body["code"])
        assert ["gap-analysis", "interview-prep", "vpr"] == refused.body["features"]


def test_a_call_without_claims_is_refused(cloud):
    assert 401 == cloud.submit(user="").status
    assert [] == cloud.receive()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("{not json", 400, "MALFORMED_BODY"),
        ([1], 400, "VALIDATION_ERROR"),
        ({"user_cv": CV}, 400, "VALIDATION_ERROR"),
        ({**REQUEST, "secret_wish": "x"}, 400, "VALIDATION_ERROR"),
        ({**REQUEST, "job_posting": "x" * 1_000_001}, 413, "VALIDATION_ERROR"),
        ({**REQUEST, "user_cv": None, "user_cv_key": "no"}, 400, "VALIDATION_ERROR"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_stored(
    cloud, body, status, code
):
    refused = cloud.submit(body)

    assert (status, code) == (refused.status, refused.body["code"])
    assert [] == cloud.receive()
    assert [] == cloud.objects()
    assert {"items": []} == cloud.listed().body


def test_a_text_of_a_million_characters_goes_by_the_bucket(cloud):
    job_id = cloud.submitted({**REQUEST, "user_cv": f"{CV} " + "x" * 999_000})

    assert "request" not in cloud.item(job_id)
    assert [f"requests/gap_analysis/{job_id}/request.json"] == cloud.objects()
    cloud.work()
    assert "COMPLETED" == cloud.status(job_id).body["status"]


def test_a_cv_is_uploaded_by_a_signed_url(cloud):
    content = CV.encode()
    offered = cloud.upload({"size": len(content)})
    key, url = offered.body["user_cv_key"], offered.body["upload_url"]

    assert 201 == offered.status
    assert (f"uploads/{ADA}/", "PUT") == (key[: 9 + len(ADA)], offered.body["method"])
    early = cloud.submit({"user_cv_key": key, "job_posting": POSTING})
    assert 400 == early.status, "nothing has been sent yet"
    assert httpx2.put(url, content=content, trust_env=False).is_success
    body = {"user_cv_key": key, "job_posting": POSTING}
    assert 400 == cloud.submit(body, user=BOB).status, "it is not his"

    job_id = cloud.submitted(body)
    cloud.work()
    result = fetched(cloud.status(job_id).body["result_url"]).json()
    assert "2 of 3" not in result["summary"], "the CV mentions Python only"
    assert "1 of 3" in result["summary"]


def test_a_file_over_the_limit_is_refused_before_and_after_its_upload(cloud):
    limit = 10 * 1024 * 1024
    assert 201 == cloud.upload({"size": limit}).status
    assert 413 == cloud.upload({"size": limit + 1}).status
    assert 400 == cloud.upload({"size": 0}).status
    key = cloud.upload({"size": 1}).body["user_cv_key"]
    # The signature binds the size; whoever gets by it is stopped at the submit.
    cloud.s3.put_object(Bucket=cloud.bucket, Key=key, Body=bytes(limit + 1))

    refused = cloud.submit({"user_cv_key": key, "job_posting": POSTING})
    assert (413, "VALIDATION_ERROR") == (refused.status, refused.body["code"])


def test_the_signature_of_an_upload_binds_its_size(cloud):
    url = httpx2.URL(cloud.upload({"size": 77}).body["upload_url"])

    assert "content-length;host" == url.params["X-Amz-SignedHeaders"]


def test_users_list_their_own_jobs_the_newest_first(cloud):
    ids = [cloud.submitted(), cloud.submitted(feature="vpr"), cloud.submitted()]
    cloud.submitted(user=BOB)

    assert ids[::-1] == [item["job_id"] for item in cloud.listed().body["items"]]
    of_one = cloud.listed(path="/api/gap-analysis/jobs").body["items"]
    assert [ids[2], ids[0]] == [item["job_id"] for item in of_one]
    assert "user_cv" not in json.dumps(of_one)


def test_a_cancelled_job_is_not_run(cloud):
    job_id = cloud.submitted()
    cancelled = cloud.cancel(job_id)

    assert ("FAILED", "CANCELLED") == (
        cancelled.body["status"],
        cancelled.body["code"],
    )
    assert 409 == cloud.cancel(job_id).status
    assert set() == cloud.work(), "its message is dropped"
    assert "CANCELLED" == cloud.status(job_id).body["code"]
    assert [] == cloud.objects()


def test_powertools_models_read_our_events(cloud):
    job_id = cloud.submitted()
    [record] = cloud.receive()
    request = api_event("POST", "/api/vpr/submit", ADA, json.dumps(REQUEST))

    model = APIGatewayProxyEventModel.model_validate(request)
    assert ADA == model.requestContext.authorizer.claims["sub"]
    assert ADA == APIGatewayProxyEvent(request).request_context.authorizer.claims["sub"]
    [parsed] = SqsModel.model_validate({"Records": [record]}).Records
    assert job_id in parsed.body
    assert "1" == parsed.attributes.ApproximateReceiveCount
    [read] = SQSEvent({"Records": [record]}).records
    assert {"job_id": job_id} == read.json_body


def test_nothing_of_a_request_or_a_result_is_logged(cloud, capsys, logged):
    body = {"user_cv": "canary-cv", "job_posting": "canary-posting and Kubernetes"}
    cloud.submitted(body)
    cloud.work()
    cloud.submit({**body, "job_posting": "x" * 1_000_001})
    told = capsys.readouterr()

    assert "Job done" in logged.getvalue(), "control: something is logged"
    assert "JobsCompleted" in told.out
    assert "canary" not in told.out + told.err + logged.getvalue()


def test_only_the_first_call_of_an_environment_is_a_cold_start(capsys):
    handler = observed(lambda _event, _context: {})
    for _ in range(2):
        handler({}, Context())
    lines = map(json.loads, capsys.readouterr().out.splitlines())

    assert ["features"] == [line["function_name"] for line in lines]


def test_pages_of_listed_origins_may_read_the_answers(monkeypatch):
    monkeypatch.setenv("CORS_ORIGINS", "https://one.example, https://two.example")
    aws_settings.cache_clear()
    app = api()
    app.get("/api/x")(dict)
    for origin, allowed in [
        ("https://one.example", ["https://one.example"]),
        ("https://two.example", ["https://two.example"]),
        ("https://three.example", None),
    ]:
        event = api_event("GET", "/api/x", ADA, Origin=origin)
        headers = app.resolve(event, Context())["multiValueHeaders"]
        assert allowed == headers.get("Access-Control-Allow-Origin")
    aws_settings.cache_clear()
