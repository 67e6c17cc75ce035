"""Submits that die between record and message, and submits that are repeated."""

import json
import sys

import pytest

from backburner_apps.features.aws import changes, items
from tests import warm
from tests.apps.features.aws.cloud import ADA, BOB, CV, REQUEST, api_event

pytestmark = pytest.mark.one_store
SECONDS = 60
KEY = {"Idempotency-Key": "monday"}
LEASE = changes.SEND_SECONDS
SHOWN = LEASE + items.GRACE_SECONDS + 1
"""Seconds after which users see that a job was not queued."""

DIES = """
import json, os, signal, sys
from backburner_apps.features.aws import deployment, jobs_table, submit
from tests.apps.features.aws.cloud import Context

def dying(*_given):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[1] == "before the message":
    deployment.send = dying
else:
    jobs_table.JobsTable.mark_sent = dying
submit.handler(json.load(sys.stdin), Context())
"""


def died(cloud, where, **headers):
    """Kill a submit; return the id of the job that it stored."""
    event = api_event(
        "POST", "/api/gap-analysis/submit", ADA, json.dumps(REQUEST), **headers
    )
    ended = warm.run(
        [sys.executable, "-c", DIES, where],
        input=json.dumps(event),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert -9 == ended.returncode, ended.stderr
    [listed] = cloud.listed().body["items"]
    assert "PENDING" == listed["status"]
    return listed["job_id"]


def test_a_job_without_a_message_fails_after_two_minutes(cloud, later):
    job_id = died(cloud, "before the message")
    sent = cloud.submitted()
    later(seconds=SHOWN)

    shown = cloud.status(job_id).body
    assert ("FAILED", "INTERNAL_ERROR") == (shown["status"], shown["code"])
    assert "The job was not queued. Submit it again." == shown["error"]
    listed = {each["job_id"]: each for each in cloud.listed().body["items"]}
    assert shown == listed[job_id]
    assert "PENDING" == cloud.status(sent).body["status"], "control: this one waits"
    cloud.work()
    assert "COMPLETED" == cloud.status(sent).body["status"]


def test_a_submit_that_dies_after_its_message_costs_nothing(cloud):
    job_id = died(cloud, "after the message")

    assert set() == cloud.work()
    assert "COMPLETED" == cloud.status(job_id).body["status"]


def test_a_job_that_was_shown_as_failed_is_not_run_later(cloud, later):
    job_id = died(cloud, "after the message")
    later(seconds=SHOWN)
    assert "FAILED" == cloud.status(job_id).body["status"]

    assert set() == cloud.work(), "its message is dropped"
    shown = cloud.status(job_id).body
    assert ("FAILED", "INTERNAL_ERROR") == (shown["status"], shown["code"])
    assert [] == cloud.objects()


def test_no_worker_begins_a_job_that_another_clock_may_show_as_failed(
    cloud, later, delays
):
    job_id = died(cloud, "after the message")
    later(seconds=LEASE + 1)
    [record] = cloud.receive()

    assert {record["messageId"]} == cloud.work([record])
    assert "PENDING" == cloud.status(job_id).body["status"]
    assert [] == cloud.objects()
    assert items.GRACE_SECONDS / 2 < delays[0] <= items.GRACE_SECONDS


def test_a_backlog_of_hours_is_no_failure(cloud, later):
    job_id = cloud.submitted()
    later(hours=5)

    assert "PENDING" == cloud.status(job_id).body["status"]
    cloud.work()
    assert "COMPLETED" == cloud.status(job_id).body["status"]


def test_a_repeat_with_the_same_key_sends_the_missing_message(cloud):
    job_id = died(cloud, "before the message", **KEY)
    assert [] == cloud.receive(), "control: there is none"
    again = cloud.submit(**KEY)

    assert (202, job_id) == (again.status, again.body["job_id"])
    cloud.work()
    assert "COMPLETED" == cloud.status(job_id).body["status"]
    assert 1 == len(cloud.listed().body["items"])


def test_the_same_key_gives_the_same_job_and_one_message(cloud):
    first, again = cloud.submit(**KEY), cloud.submit(**KEY)
    quoted = cloud.submit(**{"Idempotency-Key": '"monday"'})

    ids = {each.body["job_id"] for each in (first, again, quoted)}
    assert {first.body["job_id"]} == ids
    assert 1 == len(cloud.receive(most=10))
    assert first.body["job_id"] != cloud.submit().body["job_id"], "control: no key"
    other = cloud.submit(user=BOB, **KEY).body["job_id"]
    assert 1 == len({other, *ids} - ids), "keys of two users are apart"


@pytest.mark.parametrize("size", [0, 300_000], ids=["item", "bucket"])
def test_a_key_is_not_taken_for_another_request(cloud, size):
    job_id = cloud.submit({**REQUEST, "user_cv": CV + "x" * size}, **KEY).body["job_id"]
    stored = cloud.item(job_id)
    refused = cloud.submit({**REQUEST, "user_cv": CV + "y" * (size + 1)}, **KEY)

    assert (422, "IDEMPOTENCY_CONFLICT") == (refused.status, refused.body["code"])
    assert stored == cloud.item(job_id)
    cloud.work()
    assert "COMPLETED" == cloud.status(job_id).body["status"]


@pytest.mark.parametrize("key", ["", "x" * 256, "schlüssel"])
def test_a_key_that_cannot_be_one_is_refused(cloud, key):
    refused = cloud.submit(**{"Idempotency-Key": key})

    assert (422, "INVALID_INPUT") == (refused.status, refused.body["code"])
    assert [] == cloud.receive()


def test_a_key_is_free_again_when_its_record_has_expired(cloud, later):
    job_id = cloud.submit(**KEY).body["job_id"]
    cloud.work()
    later(days=8)
    again = cloud.submit({**REQUEST, "user_cv": f"{CV} Also Go."}, **KEY)

    assert (202, "PENDING") == (again.status, again.body["status"])
    assert job_id != again.body["job_id"], "the old result is not the new job's"
    cloud.work()
    assert 2 == len(cloud.objects())
