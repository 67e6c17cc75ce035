"""What the worker does with messages whose jobs fail, come twice or lose a worker."""

import asyncio
import json
import sys
import threading
from dataclasses import replace

import pytest

from backburner_apps.features.aws import changes, clock, deployment, worker
from backburner_apps.features.aws.model import FunctionModel
from tests import warm
from tests.apps.features.aws.cloud import POSTING, REQUEST

pytestmark = pytest.mark.one_store
SECONDS = 60
UNWELL = {**REQUEST, "job_posting": f"{POSTING} [[mock: 503]]"}

DIES = """
import json, os, signal, sys
from backburner_apps.features.aws import dynamo_jobs, worker
from tests.apps.features.aws.cloud import Context

update = dynamo_jobs.DynamoJobs.update_job_status
async def dying(self, job_id, status, **fields):
    if status == "COMPLETED":
        os.kill(os.getpid(), signal.SIGKILL)
    return await update(self, job_id, status, **fields)

dynamo_jobs.DynamoJobs.update_job_status = dying
worker.handler({"Records": json.load(sys.stdin)}, Context())
"""


def test_one_failed_message_of_two_is_reported(cloud):
    good, bad = cloud.submitted(), cloud.submitted(UNWELL)
    records = [*cloud.receive(), *cloud.receive()]
    [of_bad] = [r["messageId"] for r in records if bad in r["body"]]

    assert {of_bad} == cloud.work(records)
    assert "COMPLETED" == cloud.status(good).body["status"]
    assert "PROCESSING" == cloud.status(bad).body["status"], "it awaits a retry"


def test_a_failed_job_comes_back_after_two_seconds_not_after_fifteen_minutes(
    cloud, delays
):
    job_id = cloud.submitted(UNWELL)
    cloud.work()

    assert [2] == delays
    assert [] == cloud.receive(), "it is hidden for now"
    cloud.change(job_id, request=json.dumps(REQUEST).encode())
    [again] = cloud.receive(seconds=20)
    assert "2" == again["attributes"]["ApproximateReceiveCount"]
    cloud.work([again])
    assert "COMPLETED" == cloud.status(job_id).body["status"]


def test_three_receives_lead_to_the_dead_letter_queue(cloud, delays):
    job_id = cloud.submitted(UNWELL)
    for _ in range(3):
        [record] = cloud.receive()
        assert {record["messageId"]} == cloud.work([record])
        cloud.show(record)

    assert [2, 4, 0] == delays, "the last one goes at once"
    assert [] == cloud.receive()
    [dead] = cloud.receive(cloud.dlq_url)
    assert {"job_id": job_id} == json.loads(dead["body"])
    shown = cloud.status(job_id).body
    assert ("FAILED", "LLM_API_ERROR") == (shown["status"], shown["code"])
    kept = int(cloud.item(job_id)["ttl"]["N"]) - clock.now().timestamp()
    assert abs(kept - 14 * 24 * 3600) < 600


def test_a_dead_letter_of_a_failed_job_that_is_moved_back_is_dropped(cloud):
    job_id = cloud.submitted({**REQUEST, "user_cv": "x [[mock: nonsense]]"})
    cloud.work()
    assert "FAILED" == cloud.status(job_id).body["status"]
    cloud.sqs.send_message(
        QueueUrl=cloud.queue_url, MessageBody=json.dumps({"job_id": job_id})
    )

    assert set() == cloud.work()
    assert "FAILED" == cloud.status(job_id).body["status"], "it never goes back"


def test_a_provider_may_ask_for_a_longer_wait(cloud, delays):
    cloud.submitted({**REQUEST, "user_cv": "x [[mock: 429 retry-after=9]]"})
    cloud.work()

    assert [9] == delays


def test_an_unusable_answer_is_corrected_once_and_not_retried(
    cloud, aimock, monkeypatch
):
    monkeypatch.setenv("BACKBURNER_AI", "openai")
    monkeypatch.setenv("OPENAI_BASE_URL", aimock.url)
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    aimock.answers("I would rather not.")
    job_id = cloud.submitted()

    assert set() == cloud.work(), "another delivery would not help"
    shown = cloud.status(job_id).body
    assert ("FAILED", "LLM_API_ERROR") == (shown["status"], shown["code"])
    assert 2 == len(aimock.requests()), "the question and one correction"


def test_a_run_over_its_time_has_failed_and_is_not_retried(cloud, monkeypatch):
    whole = worker.deployment_of
    monkeypatch.setattr(
        worker,
        "deployment_of",
        lambda *given: replace(whole(*given), timeout_seconds=0.05),
    )
    job_id = cloud.submitted({**REQUEST, "user_cv": "x [[mock: hang]]"})

    assert set() == cloud.work()
    shown = cloud.status(job_id).body
    assert ("FAILED", "TIMEOUT") == (shown["status"], shown["code"])
    assert "Processing timeout after" in shown["error"]


@pytest.mark.usefixtures("cloud")
def test_functions_have_ten_minutes_for_a_run():
    made = deployment.deployment_of(deployment.jobs_of())

    assert 600 == made.timeout_seconds
    assert made.timeout_seconds < changes.LEASE_SECONDS < 900


class Slow:
    """A model that answers when it is told to; counts who asks."""

    def __init__(self, monkeypatch):
        self.asked, self.go = threading.Semaphore(0), threading.Event()
        self.count = 0
        slow = self

        async def ask(_self, _prompt, *, example, **_):
            slow.count += 1
            slow.asked.release()
            await asyncio.to_thread(slow.go.wait, SECONDS)
            return example()

        monkeypatch.setattr(FunctionModel, "ask", ask)


@pytest.mark.parametrize("is_protected", [True, False], ids=["lease", "control"])
def test_a_message_delivered_twice_at_once_gives_one_result(
    cloud, monkeypatch, delays, is_protected
):
    if not is_protected:
        monkeypatch.setattr(changes, "LEASE_SECONDS", -1)
    slow, job_id = Slow(monkeypatch), cloud.submitted()
    [record] = cloud.receive()
    first = threading.Thread(target=cloud.work, args=[[record]])
    first.start()
    assert slow.asked.acquire(timeout=SECONDS)
    # The same message once more, while the first run is under way.
    again = {**record, "attributes": {**record["attributes"]}}
    again["attributes"]["ApproximateReceiveCount"] = "2"
    second = threading.Thread(target=cloud.work, args=[[again]])
    second.start()
    if is_protected:
        second.join(SECONDS)
        assert 1 == slow.count, "the second run does not ask the model"
        assert 600 < delays[0] <= 660, "it comes back when the first must be over"
    else:
        assert slow.asked.acquire(timeout=SECONDS), "control: both ask"
    slow.go.set()
    first.join(SECONDS)
    second.join(SECONDS)

    if is_protected:
        assert "COMPLETED" == cloud.status(job_id).body["status"]
        assert [f"jobs/gap_analysis/{job_id}/result.json"] == cloud.objects()


def test_a_worker_that_dies_after_storing_the_result_is_not_paid_twice(
    cloud, monkeypatch, later
):
    job_id = cloud.submitted()
    [record] = cloud.receive()
    ended = warm.run(
        [sys.executable, "-c", DIES],
        input=json.dumps([record]),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert -9 == ended.returncode, ended.stderr
    assert [f"jobs/gap_analysis/{job_id}/result.json"] == cloud.objects()
    assert "PROCESSING" == cloud.status(job_id).body["status"]

    slow = Slow(monkeypatch)
    cloud.show(record)
    later(minutes=15)
    assert set() == cloud.work()
    assert "COMPLETED" == cloud.status(job_id).body["status"]
    assert 0 == slow.count, "the stored result is used"


def test_a_job_whose_last_worker_was_lost_has_failed(cloud, later):
    job_id = cloud.submitted()
    now = int(clock.now().timestamp())
    cloud.change(
        job_id,
        status="PROCESSING",
        attempts=3,
        lease_token="lost",  # noqa: S106 - of a run
        lease_until=now + changes.LEASE_SECONDS,
    )
    assert "PROCESSING" == cloud.status(job_id).body["status"]
    later(minutes=15)
    shown = cloud.status(job_id).body

    assert ("FAILED", "INTERNAL_ERROR") == (shown["status"], shown["code"])
    assert "FAILED" == cloud.listed().body["items"][0]["status"]
    assert set() == cloud.work(), "an operator may move it back: it stays failed"
    assert "FAILED" == cloud.item(job_id)["status"]["S"]


def test_a_message_that_cannot_be_read_becomes_a_dead_letter(cloud, logged):
    cloud.sqs.send_message(QueueUrl=cloud.queue_url, MessageBody="canary-body")
    for _ in range(3):
        [record] = cloud.receive()
        assert {record["messageId"]} == cloud.work([record])
        cloud.show(record)

    assert [] == cloud.receive()
    assert 1 == len(cloud.receive(cloud.dlq_url))
    assert "MALFORMED_MESSAGE" in logged.getvalue()
    assert "canary" not in logged.getvalue()


def test_failed_deliveries_are_counted_for_the_alarm(cloud, capsys):
    cloud.submitted(UNWELL)
    cloud.work()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = [name for line in lines for name in line if "_aws" in line]

    assert {"WorkerErrors", "ProcessingDuration", "LLMLatency"} <= set(names)
    [counted] = [line for line in lines if "WorkerErrors" in line]
    dimensions = counted["_aws"]["CloudWatchMetrics"][0]["Dimensions"]
    assert ["service"] in dimensions, "alarms look at the whole service"
