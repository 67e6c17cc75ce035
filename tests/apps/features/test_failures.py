"""Models that fail, runs that take too long, jobs that are cancelled."""

import asyncio
from datetime import timedelta

import pytest

from backburner import RetryPolicy
from backburner_apps.features.tables import results
from tests.apps.features.conftest import POSTING
from tests.apps.process import until

AT_ONCE = RetryPolicy(base=timedelta(), jitter=timedelta())
ORDER = ["PENDING", "PROCESSING", "COMPLETED", "FAILED"]
NO_ANSWER = "the model gave no usable answer"


def impatient(features):
    """Have retries wait for nothing."""
    names = [f"features.{name}" for name in ("gap-analysis", "vpr", "interview-prep")]
    features.backburner.registry.retries |= dict.fromkeys(names, AT_ONCE)


async def polled(features, job_id):
    """Return the statuses that a poller sees until the job ends."""
    seen = []
    async with asyncio.timeout(60):
        while not seen or seen[-1] in {"PENDING", "PROCESSING"}:
            seen.append((await features.status(job_id)).json()["status"])
    return seen


async def test_a_model_that_stays_away_leads_to_the_dead_letter(start):
    features = await start()
    impatient(features)
    labels = {"feature": "gap-analysis", "code": "LLM_API_ERROR"}
    before = features.metric("jobs_failed_total", **labels)

    job_id = (await features.submit(posting=f"{POSTING} [[mock: 503]]"))["job_id"]
    seen = await polled(features, job_id)
    shown = await features.ended(job_id)
    letters = (await features.client.get("/v1/jobs?state=failed")).json()["items"]

    assert seen == sorted(seen, key=ORDER.index), "the status never goes back"
    assert ("FAILED", "LLM_API_ERROR") == (shown["status"], shown["code"])
    assert f"AI_UNAVAILABLE: {NO_ANSWER}" == shown["error"]
    assert [(f"job_{job_id}", 3)] == [(j["id"], j["attempt"]) for j in letters]
    assert [] == await features.blobs(), "there is no result"

    async def is_counted():
        return features.metric("jobs_failed_total", **labels) > before

    await until(is_counted)
    assert before + 1 == features.metric("jobs_failed_total", **labels)


@pytest.mark.one_store
async def test_a_model_that_comes_back_completes_the_job(start):
    features = await start()
    impatient(features)

    posting = f"{POSTING} [[mock: 503 times=2]]"
    job_id = (await features.submit(posting=posting))["job_id"]
    shown = await features.ended(job_id)

    assert "COMPLETED" == shown["status"]
    assert 3 == (await features.job(job_id)).attempt


@pytest.mark.one_store
@pytest.mark.parametrize(
    ("mishap", "least", "most"),
    [
        pytest.param("503", 2_000, 3_000, id="back-off"),
        pytest.param("429 retry-after=7", 7_000, 7_000, id="retry-after"),
        pytest.param("429 retry-after=9999", 60_000, 60_000, id="bounded"),
    ],
)
async def test_a_retry_waits_and_is_processing_meanwhile(start, mishap, least, most):
    features = await start()

    posting = f"{POSTING} [[mock: {mishap}]]"
    job_id = (await features.submit(posting=posting))["job_id"]

    async def is_waiting():
        job = await features.job(job_id)
        return job if job.state == "scheduled" else None

    job = await until(is_waiting)
    shown = (await features.status(job_id)).json()
    [retrying] = [
        event
        for event in await features.backburner.engine.store.history(
            job.id, after=0, limit=10
        )
        if event.type == "job.retrying"
    ]

    assert least <= job.run_at - retrying.at <= most
    assert 1 == job.attempt, "a rate limit costs an attempt, too"
    assert "PROCESSING" == shown["status"]
    assert "started_at" in shown


@pytest.mark.one_store
@pytest.mark.parametrize(
    ("mishap", "status", "calls"),
    [("misfit", "FAILED", 2), ("misfit once", "COMPLETED", 2), ("ok", "COMPLETED", 1)],
)
async def test_an_invalid_answer_is_corrected_once_and_not_retried(
    start, mishap, status, calls
):
    features = await start()

    posting = f"{POSTING} [[mock: {mishap}]]"
    job_id = (await features.submit(posting=posting))["job_id"]
    shown = await features.ended(job_id)
    usage = (await features.client.get("/v1/usage?by=model")).json()

    assert status == shown["status"]
    assert 1 == (await features.job(job_id)).attempt
    assert [calls] == [each["calls"] for each in usage["items"]]
    if status == "FAILED":
        assert "LLM_API_ERROR" == shown["code"]
        assert f"AI_SCHEMA_VIOLATION: {NO_ANSWER}" == shown["error"]


async def test_a_run_over_its_time_has_failed_and_is_not_retried(start):
    features = await start(timeout_seconds=0.3)

    posting = f"{POSTING} [[mock: hang]]"
    job_id = (await features.submit(posting=posting))["job_id"]
    shown = await features.ended(job_id)

    assert ("FAILED", "TIMEOUT") == (shown["status"], shown["code"])
    assert "Processing timeout after 0.3 seconds" == shown["error"]
    assert 1 == (await features.job(job_id)).attempt


@pytest.mark.one_store
@pytest.mark.parametrize(
    ("content", "error"),
    [
        pytest.param(b" \n\t ", "the file", id="blank"),
        pytest.param(b"%PDF-1.7\nnot really", "CORRUPT_FILE", id="corrupt"),
        pytest.param(b"\x7fELF" + bytes(200), "UNSUPPORTED_TYPE", id="program"),
    ],
)
async def test_a_file_without_text_has_failed_and_is_not_retried(start, content, error):
    features = await start()

    key = await features.upload(content)
    asked = {"user_cv_key": key, "job_posting": POSTING}
    sent = await features.client.post("/api/vpr/submit", json=asked)
    job_id = sent.json()["job_id"]
    shown = await features.ended(job_id, "vpr")

    assert ("FAILED", "VALIDATION_ERROR") == (shown["status"], shown["code"])
    assert error in shown["error"]
    assert 1 == (await features.job(job_id)).attempt


@pytest.mark.parametrize("by", ["features", "engine"])
async def test_a_running_job_is_cancelled_at_once_whoever_does_it(start, by):
    features = await start()
    posting = f"{POSTING} [[mock: hang]]"
    job_id = (await features.submit(posting=posting))["job_id"]

    async def is_running():
        return (await features.status(job_id)).json()["status"] == "PROCESSING"

    await until(is_running)
    path = {
        "features": f"/api/gap-analysis/cancel/{job_id}",
        "engine": f"/v1/jobs/job_{job_id}/cancel",
    }
    cancelled = await features.client.post(path[by])
    shown = (await features.status(job_id)).json()

    assert 200 == cancelled.status_code
    assert ("FAILED", "CANCELLED") == (shown["status"], shown["code"])
    assert [] == await features.rows(results)


@pytest.mark.one_store
async def test_a_job_that_has_ended_cannot_be_cancelled(start):
    features = await start()
    job_id = (await features.submit())["job_id"]
    await features.ended(job_id)

    refused = await features.client.post(f"/api/gap-analysis/cancel/{job_id}")

    assert 409 == refused.status_code
    assert "COMPLETED" == (await features.ended(job_id))["status"]


@pytest.mark.one_store
async def test_a_dead_letter_that_is_retried_completes(start):
    features = await start()
    impatient(features)
    posting = f"{POSTING} [[mock: 503 times=3]]"
    job_id = (await features.submit(posting=posting))["job_id"]
    failed = await features.ended(job_id)

    retried = await features.client.post(f"/v1/jobs/job_{job_id}/retry")
    done = await features.ended(job_id)

    assert ("FAILED", 202) == (failed["status"], retried.status_code)
    assert "COMPLETED" == done["status"]
