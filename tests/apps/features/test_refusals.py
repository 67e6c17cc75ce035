"""What is refused, before anything is stored."""

import pytest

from tests.apps.features.conftest import ANN, CV, POSTING, body

MAX_FILE_SIZE = 10 * 1024 * 1024
MAX_TEXT_LENGTH = 1_000_000
NAMES = ["gap-analysis", "interview-prep", "vpr"]

pytestmark = pytest.mark.one_store


async def nothing_is_stored(features):
    return not await features.backburner.jobs() and not await features.blobs()


@pytest.fixture
async def features(start):
    return await start(works=False)


async def test_a_file_over_10_mib_is_refused(features):
    allowed = await features.client.post(
        "/api/vpr/uploads", json={"size": MAX_FILE_SIZE}
    )
    refused = await features.client.post(
        "/api/vpr/uploads", json={"size": MAX_FILE_SIZE + 1}
    )
    sent = await features.client.put(
        allowed.json()["upload_url"], content=b"x" * (MAX_FILE_SIZE + 1)
    )
    asked = {"user_cv_key": allowed.json()["user_cv_key"], "job_posting": POSTING}
    submitted = await features.client.post("/api/vpr/submit", json=asked)

    assert (201, 413) == (allowed.status_code, refused.status_code)
    assert 403 == sent.status_code, "the URL takes the announced size only"
    assert 400 == submitted.status_code
    assert "no file was sent" in submitted.json()["detail"]
    assert await nothing_is_stored(features)


@pytest.mark.parametrize("field", ["user_cv", "job_posting"])
async def test_a_text_over_a_million_characters_is_refused(features, field):
    long = "é" * MAX_TEXT_LENGTH
    refused = await features.client.post(
        "/api/gap-analysis/submit", json=body() | {field: long + "é"}
    )
    assert await nothing_is_stored(features)
    allowed = await features.client.post(
        "/api/gap-analysis/submit", json=body() | {field: long}
    )

    assert (413, 202) == (refused.status_code, allowed.status_code)
    told = refused.json()
    assert "VALIDATION_ERROR" == told["code"]
    assert f"{field} has 1000001 characters" in told["detail"]


async def test_a_text_in_a_list_counts_as_well(features):
    answers = [{"question": "Why?", "answer": "x" * (MAX_TEXT_LENGTH + 1)}]
    refused = await features.client.post(
        "/api/vpr/submit", json=body(gap_answers=answers)
    )

    assert 413 == refused.status_code
    assert await nothing_is_stored(features)


BAD = {
    "no posting": {"user_cv": CV},
    "an empty posting": {"user_cv": CV, "job_posting": " \n"},
    "no CV": {"job_posting": POSTING},
    "two CVs": body(user_cv_key="upload_1"),
    "an unknown field": body(user_vc="x"),
    "too many questions": body(max_questions=16),
    "a number": body(posting=7),
    "a list": [],
    "an unknown file": {"user_cv_key": "upload_1", "job_posting": POSTING},
    "null": None,
}


@pytest.mark.parametrize("sent", BAD.values(), ids=BAD)
async def test_a_bad_body_is_a_400_and_stores_nothing(features, sent):
    refused = await features.client.post("/api/gap-analysis/submit", json=sent)

    assert 400 == refused.status_code, refused.text
    assert CV not in refused.text
    assert await nothing_is_stored(features)


async def test_a_body_is_read_as_json_whatever_it_says_but_not_multipart(features):
    path, typed = "/api/gap-analysis/submit", "content-type"
    content = f'{{"user_cv": "x", "job_posting": "{POSTING}"}}'
    form = await features.client.post(
        path, content=content, headers={typed: "application/x-www-form-urlencoded"}
    )
    multipart = await features.client.post(path, files={"user_cv": b"x"})
    broken = await features.client.post(path, content="{")

    answers = (form.status_code, multipart.status_code, broken.status_code)
    assert (202, 415, 400) == answers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/horoscope/submit"),
        ("GET", "/api/horoscope/status/1"),
        ("POST", "/api/horoscope/uploads"),
        ("GET", "/api/horoscope/jobs"),
        ("POST", "/api/horoscope/cancel/1"),
    ],
)
async def test_an_unknown_feature_is_a_404_with_the_list(features, method, path):
    refused = await features.client.request(method, path)

    assert 404 == refused.status_code
    told = refused.json()
    assert ("UNKNOWN_FEATURE", NAMES) == (told["code"], told["features"])


async def test_another_users_job_and_file_are_not_found(start):
    features = await start(keyed=True, works=False)
    ann, bob = await features.key("ann"), await features.key("bob")
    job_id = (await features.submit(headers=ann))["job_id"]
    offered = await features.client.post(
        "/api/vpr/uploads", json={"size": 3}, headers=ann
    )
    await features.client.put(offered.json()["upload_url"], content=b"abc")
    asked = {
        "user_cv_key": offered.json()["user_cv_key"],
        "job_posting": POSTING,
    }

    own = await features.status(job_id, headers=ann)
    others = await features.status(job_id, headers=bob)
    cancelled = await features.client.post(
        f"/api/gap-analysis/cancel/{job_id}", headers=bob
    )
    listed = await features.client.get("/api/jobs", headers=bob)
    stolen = await features.client.post("/api/vpr/submit", json=asked, headers=bob)
    used = await features.client.post("/api/vpr/submit", json=asked, headers=ann)

    assert 200 == own.status_code
    assert (404, 404) == (others.status_code, cancelled.status_code)
    assert "JOB_NOT_FOUND" == others.json()["code"]
    assert [] == listed.json()["items"]
    assert (400, 202) == (stolen.status_code, used.status_code)
    assert "queued" == (await features.job(job_id, ANN)).state


@pytest.mark.parametrize("job_id", ["1", "job_1", "0" * 36, "'; drop table jobs"])
async def test_an_id_that_is_none_is_not_found(features, job_id):
    assert 404 == (await features.status(job_id)).status_code


async def test_a_job_is_found_under_its_own_feature_only(features):
    job_id = (await features.submit("vpr"))["job_id"]

    assert 200 == (await features.status(job_id, "vpr")).status_code
    assert 404 == (await features.status(job_id, "gap-analysis")).status_code


async def test_a_key_needs_the_scope_of_its_route(start):
    features = await start(keyed=True, works=False)
    reader = await features.key("ann", "jobs:read")

    refused = await features.client.post("/api/vpr/submit", json=body(), headers=reader)
    uploads = await features.client.post(
        "/api/vpr/uploads", json={"size": 1}, headers=reader
    )
    nobody = await features.client.get("/api/jobs")

    statuses = (refused.status_code, uploads.status_code, nobody.status_code)
    assert (403, 403, 401) == statuses
