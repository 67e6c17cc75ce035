"""Job records in DynamoDB: conditions that are lost, throttling, expiry, the index."""

import json
from datetime import timedelta

import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from deploy.aws.add_index import add_index

from backburner_apps.features.aws import clock, deployment
from backburner_apps.features.aws.changes import Run
from backburner_apps.features.core.records import JobRecord, JobStatus
from backburner_apps.features.core.result import ResultCode
from tests.apps.features.aws.cloud import ADA

pytestmark = pytest.mark.one_store
THROTTLED = "ProvisionedThroughputExceededException"


@pytest.fixture
def jobs(cloud):  # noqa: ARG001 - it must be there
    """Access for the API: no run of a worker."""
    return deployment.jobs_of()


@pytest.fixture
def throttled(cloud, monkeypatch):  # noqa: ARG001 - it must be there
    """Has DynamoDB refuse calls of one kind for as long as `on` says."""
    no_retries = deployment._CONFIG.merge(Config(retries={"total_max_attempts": 1}))
    monkeypatch.setattr(deployment, "_CONFIG", no_retries)
    switch = {"on": True}

    def refuse(request, **_):
        if not switch["on"]:
            return None
        body = {"__type": f"com.amazonaws#{THROTTLED}", "message": "slow down"}
        return Canned(request.url, json.dumps(body).encode())

    def of(call):
        events = deployment.table().table.meta.client.meta.events
        events.register(f"before-send.dynamodb.{call}", refuse)
        return switch

    return of


class Canned(AWSResponse):
    """An answer that no server gave."""

    def __init__(self, url, body):
        super().__init__(url, 400, {"Content-Type": "application/x-amz-json-1.0"}, None)
        self._body = body

    @property
    def content(self):
        return self._body


def record():
    return JobRecord(user_id=ADA, feature="gap_analysis", created_at=clock.now())


async def created(jobs):
    made = await jobs.create_job(record(), b"{}")
    assert made.success
    return made.data.job_id


async def test_a_status_never_goes_back(jobs):
    job_id = await created(jobs)
    done = await jobs.update_job_status(job_id, JobStatus.COMPLETED)
    assert done.success
    for status in JobStatus:
        lost = await jobs.update_job_status(job_id, status)
        assert (False, ResultCode.CONFLICT) == (lost.success, lost.code), status
    assert JobStatus.COMPLETED is (await jobs.get_job(job_id)).data.status


async def test_of_two_runs_one_claims_a_job_and_the_other_can_end_nothing(jobs):
    job_id = await created(jobs)
    one, two = deployment.jobs_of(Run()), deployment.jobs_of(Run(2))

    assert (await one.update_job_status(job_id, JobStatus.PROCESSING)).success
    for status in (JobStatus.PROCESSING, JobStatus.COMPLETED, JobStatus.FAILED):
        lost = await two.update_job_status(job_id, status)
        assert ResultCode.CONFLICT is lost.code
    assert (await one.update_job_status(job_id, JobStatus.COMPLETED)).success


async def test_a_call_that_is_repeated_because_its_answer_was_lost_succeeds(jobs):
    job_id, run = await created(jobs), deployment.jobs_of(Run())
    for status in (JobStatus.PROCESSING, JobStatus.COMPLETED):
        for _ in range(2):
            assert (await run.update_job_status(job_id, status)).success


async def test_a_record_is_created_once(jobs):
    made = record()
    assert (await jobs.create_job(made, b"{}")).success
    assert (await jobs.create_job(made, b"{}")).success, "the same call, repeated"
    other = made.model_copy(update={"created_at": clock.now() - timedelta(hours=1)})
    lost = await jobs.create_job(other, b"{}")

    assert not lost.success


async def test_an_unknown_job_is_not_found(jobs):
    for result in (
        await jobs.get_job("none"),
        await jobs.get_request("none"),
        await jobs.update_job_status("none", JobStatus.FAILED),
    ):
        assert ResultCode.NOT_FOUND is result.code


async def test_an_expired_record_is_gone_before_dynamodb_deletes_it(cloud, jobs):
    job_id = await created(jobs)
    await jobs.update_job_status(
        job_id, JobStatus.COMPLETED, ttl=int(clock.now().timestamp()) - 1
    )

    assert ResultCode.NOT_FOUND is (await jobs.get_job(job_id)).code
    assert [] == (await jobs.get_user_jobs(ADA)).data
    assert "pk" in cloud.item(job_id), "control: the item is there"


def test_a_throttled_submit_is_answered_with_503(cloud, throttled):
    switch = throttled("PutItem")
    refused = cloud.submit()

    assert (503, "THROTTLED") == (refused.status, refused.body["code"])
    assert refused.body["retryable"]
    assert [] == cloud.receive(), "no message without a record"
    switch["on"] = False
    assert 202 == cloud.submit().status


@pytest.mark.parametrize("call", ["GetItem", "UpdateItem"])
def test_a_job_whose_worker_is_throttled_is_delivered_again(cloud, throttled, call):
    job_id = cloud.submitted()
    switch = throttled(call)
    [message] = cloud.receive()
    assert {message["messageId"]} == cloud.work([message])
    switch["on"] = False
    assert "PENDING" == cloud.status(job_id).body["status"]
    cloud.show(message)

    assert set() == cloud.work()
    assert "COMPLETED" == cloud.status(job_id).body["status"]


def test_a_queue_that_takes_nothing_fails_the_job(cloud, monkeypatch):
    monkeypatch.setenv("QUEUE_URL", f"{cloud.queue_url}-none")
    deployment.aws_settings.cache_clear()
    refused = cloud.submit()

    assert (503, "STORE_ERROR") == (refused.status, refused.body["code"])
    [listed] = cloud.listed().body["items"]
    assert ("FAILED", "INTERNAL_ERROR") == (listed["status"], listed["code"])


def test_a_table_without_the_index_is_named_with_the_command_that_adds_it(
    bare_cloud, logged
):
    bare_cloud.make_table(with_index=False)
    refused = bare_cloud.listed()

    assert (503, "MISSING_INDEX") == (refused.status, refused.body["code"])
    command = f"python deploy/aws/add_index.py {bare_cloud.table}"
    assert command in logged.getvalue(), "operators find it in the log"
    assert bare_cloud.table not in json.dumps(refused.body)
    job_id = bare_cloud.submitted()

    add_index(bare_cloud.table)
    assert [job_id] == [item["job_id"] for item in bare_cloud.listed().body["items"]]
