"""Large inputs and outputs over HTTP, and links to them."""

import asyncio
import resource
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest

from backburner import Context, PermanentError, capability
from backburner.domain.blobs.blob import BlobKey
from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import Options
from backburner.http.schemas.jobs import JobView, LinkView

KIB = 1024
FIVE_MIB = 5 * KIB * KIB
BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "contents"


@capability("test.grow")
async def grow(_ctx: Context, size: int) -> str:
    return "x" * size


@capability("test.refuse")
async def refuse(_ctx: Context, _value: str) -> None:
    raise PermanentError("no")


@pytest.fixture
async def server(serve, root):
    return await serve(
        body_limit=11 * KIB * KIB,
        blobs=root.as_uri(),
        capabilities=[grow, refuse],
    )


@pytest.fixture
async def idle(serve, root):
    """A server without a worker."""
    return await serve(works=False, body_limit=11 * KIB * KIB, blobs=root.as_uri())


def a_value(size):
    """Return an input that is so long as JSON."""
    return {"text": "x" * (size - len('{"text":""}'))}


def files_in(root):
    return [path for path in root.rglob("*") if path.is_file()]


@contextmanager
def files_may_have(size):
    """Have the kernel refuse larger files, as a full disk would refuse them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def finished(server, size=100 * KIB):
    """Return a job that ended with a large output."""
    return await server.ended(await server.submit("demo.echo", a_value(size)))


async def link_to(server, job, **query):
    """Ask for a link to a content of the job."""
    path = f"{job['links']['self']}/link"
    return await server.client.get(path, params=query)


@BOTH
@pytest.mark.parametrize(
    ("size", "kept"),
    [(64 * KIB - 1, 0), (64 * KIB, 0), (64 * KIB + 1, 2), (FIVE_MIB, 2)],
)
async def test_an_input_of_any_size_comes_back_whole(server, root, size, kept):
    value = a_value(size)
    receipt = await server.submit("demo.echo", value, tags=["x"])
    job = await server.ended(receipt)
    result = await server.client.get(receipt["links"]["result"])
    listed = (await server.client.get("/v1/jobs")).json()["items"]

    assert "succeeded" == job["state"]
    assert value == job["input"]
    assert value == job["output"]
    assert job.keys() == JobView.model_validate(job).model_fields_set
    assert 200 == result.status_code
    assert size == len(result.content) == int(result.headers["Content-Length"])
    assert value == result.json()
    assert "application/json" == result.headers["Content-Type"]
    assert [receipt["id"]] == [item["id"] for item in listed]
    assert kept == len(files_in(root))


async def test_a_caller_that_waits_gets_a_large_output(server):
    response = await server.client.post(
        "/v1/jobs",
        json={"capability": "demo.echo", "input": a_value(FIVE_MIB)},
        headers={"Prefer": "wait=30"},
    )

    assert 200 == response.status_code
    assert a_value(FIVE_MIB) == response.json()["output"]


async def test_a_large_job_that_waits_shows_its_input(idle):
    receipt = await idle.submit("demo.echo", a_value(FIVE_MIB))
    response = await idle.client.get(receipt["links"]["self"])

    assert a_value(FIVE_MIB) == response.json()["input"]
    assert "output" not in response.json()
    assert "1" == response.headers["Retry-After"]


async def test_a_dead_letter_with_a_large_input_is_shown_and_retried(server):
    value = "x" * FIVE_MIB
    job = await server.ended(await server.submit("test.refuse", value))
    letter = await server.client.get(f"/v1/dead-letters/{job['id']}")
    retried = await server.client.post(job["links"]["self"] + "/retry")

    assert "failed" == job["state"]
    assert value == letter.json()["input"]
    assert 202 == retried.status_code


async def test_a_repeat_of_a_large_submit_is_the_same_job(idle, root):
    asked = {"capability": "demo.echo", "input": a_value(FIVE_MIB)}
    other = {"capability": "demo.echo", "input": a_value(FIVE_MIB + 1)}
    key = {"Idempotency-Key": "k"}
    first = await idle.client.post("/v1/jobs", json=asked, headers=key)
    again = await idle.client.post("/v1/jobs", json=asked, headers=key)
    refused = await idle.client.post("/v1/jobs", json=other, headers=key)

    assert first.json() == again.json()
    assert "true" == again.headers["Idempotency-Replayed"]
    assert (422, "IDEMPOTENCY_CONFLICT") == (
        refused.status_code,
        refused.json()["code"],
    )
    assert 1 == len(files_in(root))


async def test_no_room_for_a_content_is_said_and_nothing_is_stored(idle, root):
    asked = {"capability": "demo.echo", "input": a_value(FIVE_MIB)}
    with files_may_have(2 * KIB * KIB):
        refused = await idle.client.post("/v1/jobs", json=asked)
        small = await idle.client.post("/v1/jobs", json={**asked, "input": {}})
    left = files_in(root)
    listed = (await idle.client.get("/v1/jobs")).json()["items"]
    accepted = await idle.client.post("/v1/jobs", json=asked)

    assert (507, "STORE_FULL") == (refused.status_code, refused.json()["code"])
    assert "30" == refused.headers["Retry-After"]
    assert [202, 202] == [small.status_code, accepted.status_code]
    assert [] == left
    assert 1 == len(listed)


async def test_a_folder_that_cannot_be_written_is_said(idle, root):
    root.write_text("in the way")
    asked = {"capability": "demo.echo", "input": a_value(FIVE_MIB)}
    refused = await idle.client.post("/v1/jobs", json=asked)

    assert (503, "STORE_UNAVAILABLE") == (refused.status_code, refused.json()["code"])
    assert str(root) not in refused.text


async def test_an_output_that_finds_no_room_waits_for_it(server, root):
    with files_may_have(2 * KIB * KIB):
        receipt = await server.submit("test.grow", FIVE_MIB)
        await server.until(lambda: "output not stored" in server.log.getvalue())
        during = await server.client.get(receipt["links"]["self"])
    job = await server.ended(receipt)

    assert "running" == during.json()["state"]
    assert "succeeded" == job["state"]
    assert FIVE_MIB == len(job["output"])
    assert 1 == len(files_in(root))


async def test_a_content_that_is_gone_is_said_and_its_job_still_seen(server):
    job = await finished(server)
    server.backburner.engine.payloads._blobs.delete([job["id"]])
    result = await server.client.get(job["links"]["result"])
    shown = await server.client.get(job["links"]["self"])

    assert (404, "BLOB_MISSING") == (result.status_code, result.json()["code"])
    assert (200, None, None) == (
        shown.status_code,
        shown.json()["input"],
        shown.json()["output"],
    )


@pytest.mark.parametrize("part", ["input", "output"])
async def test_a_link_opens_a_content_for_whoever_has_it(server, part):
    job = await finished(server)
    link = await link_to(server, job, part=part)
    server.client.headers["Host"] = "files.example"
    server.client.headers["Origin"] = "https://elsewhere.example"
    response = await server.client.get(link.json()["url"])

    assert 200 == link.status_code
    assert "no-store" == link.headers["Cache-Control"]
    assert link.json().keys() == LinkView.model_validate(link.json()).model_fields_set
    assert 100 * KIB == link.json()["size"]
    assert 200 == response.status_code
    assert job[part] == response.json()
    assert response.headers["Content-Disposition"].startswith(
        f'attachment; filename="{job["id"]}.{part}'
    )
    assert "nosniff" == response.headers["X-Content-Type-Options"]
    assert "private, no-store" == response.headers["Cache-Control"]
    assert "sandbox; default-src 'none'" == response.headers["Content-Security-Policy"]


async def test_a_link_ends(server, monkeypatch):
    job = await finished(server)
    usual, short = await link_to(server, job), await link_to(server, job, seconds=60)
    clock = server.backburner.engine._clock
    before, now = clock.now(), clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + 61_000)
    late = await server.client.get(short.json()["url"])
    still = await server.client.get(usual.json()["url"])
    ends = LinkView.model_validate(usual.json()).expires_at.timestamp() * 1000

    assert (403, "LINK_REFUSED") == (late.status_code, late.json()["code"])
    assert 200 == still.status_code
    assert timedelta(minutes=15) / timedelta(milliseconds=1) == pytest.approx(
        ends - before, abs=5_000
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [("exp", "9999999999"), ("kid", "deadbeef"), ("sig", "A" * 43), ("sig", "")],
)
async def test_a_forged_link_is_refused(server, key, value):
    job = await finished(server)
    url = urlsplit((await link_to(server, job)).json()["url"])
    query = {k: v[0] for k, v in parse_qs(url.query).items()} | {key: value}
    response = await server.client.get(url.path, params=query)

    assert (403, "LINK_REFUSED") == (response.status_code, response.json()["code"])


async def test_a_link_opens_nothing_else(server):
    first, other = await finished(server), await finished(server)
    url = (await link_to(server, first)).json()["url"]
    foreign = (await link_to(server, other)).json()["url"]
    swapped = f"{urlsplit(foreign).path}?{urlsplit(url).query}"
    got = await server.client.get(swapped)
    posted = await server.client.post(url)
    deleted = await server.client.delete(url)

    assert 403 == got.status_code
    assert [405, 405] == [posted.status_code, deleted.status_code]


@pytest.mark.parametrize(
    "blob_id",
    [
        "..%2f..%2fetc%2fpasswd",
        "job_1",
        "%2e%2e",
        "a.b.c",
        "job_1.input%00",
        "x" * 300,
        "job_1.%2e%2e",
    ],
)
async def test_an_id_that_is_none_of_ours_is_refused_even_if_signed(server, blob_id):
    signed_urls = server.app.state.server_state.signed_urls
    plain = await server.client.get(f"/v1/blobs/{blob_id}?exp=1&kid=a&sig=b")
    url, _ = signed_urls.sign(f"/v1/blobs/{blob_id}")
    signed = await server.client.get(url)

    assert plain.status_code in {403, 404}
    assert signed.status_code in {403, 404}


async def test_a_link_to_what_is_gone_is_404(server):
    job = await finished(server)
    url = (await link_to(server, job)).json()["url"]
    server.backburner.engine.payloads._blobs.delete([job["id"]])
    response = await server.client.get(url)

    assert (404, "BLOB_MISSING") == (response.status_code, response.json()["code"])


@pytest.mark.parametrize(
    "query", ["seconds=0", "seconds=86401", "seconds=x", "part=error", "more=1"]
)
async def test_a_link_that_cannot_be_is_refused(server, query):
    job = await server.submit()
    response = await server.client.get(f"{job['links']['self']}/link?{query}")

    assert (422, "INVALID_INPUT") == (response.status_code, response.json()["code"])


async def test_a_small_output_has_no_link(server):
    job = await server.ended(await server.submit("demo.echo", {"a": 1}))
    response = await link_to(server, job)

    assert (404, "BLOB_MISSING") == (response.status_code, response.json()["code"])


async def test_a_job_without_a_result_has_no_link_to_one(idle):
    job = await idle.submit("demo.echo", a_value(FIVE_MIB))
    output, given = await link_to(idle, job), await link_to(idle, job, part="input")

    assert (409, "NO_RESULT") == (output.status_code, output.json()["code"])
    assert 200 == given.status_code


async def test_a_strangers_job_has_no_link(server):
    options = Options(owner=Owner("default", "2"))
    value = orjson.dumps(a_value(FIVE_MIB))
    submitted = await server.backburner.engine.submit("demo.echo", value, options)
    response = await server.client.get(f"/v1/jobs/{submitted.id}/link?part=input")

    assert (404, "JOB_NOT_FOUND") == (response.status_code, response.json()["code"])


async def test_a_signature_is_not_in_the_log(server):
    job = await finished(server)
    url = (await link_to(server, job)).json()["url"]
    await server.client.get(url)
    signature = parse_qs(urlsplit(url).query)["sig"][0]

    assert signature not in server.log.getvalue()
    assert BlobKey(job["id"], "input").id not in server.log.getvalue()


async def test_only_so_many_large_bodies_come_in_at_once(idle):
    asked = orjson.dumps({"capability": "demo.echo", "input": a_value(2 * KIB * KIB)})
    bodies = idle.app.state.server_state.bodies
    bodies.limit = 1
    is_half_sent, go_on = asyncio.Event(), asyncio.Event()

    async def slowly():
        yield asked[:KIB]
        is_half_sent.set()
        await go_on.wait()
        yield asked[KIB:]

    headers = {"Content-Type": "application/json"}
    first = asyncio.ensure_future(
        idle.client.post("/v1/jobs", content=slowly(), headers=headers)
    )
    await is_half_sent.wait()
    await idle.until(lambda: bodies.taken == 1)
    second = await idle.client.post("/v1/jobs", content=asked, headers=headers)
    small = await idle.submit()
    go_on.set()
    accepted = await first
    third = await idle.client.post("/v1/jobs", content=asked, headers=headers)

    assert (503, "TOO_MANY_BODIES") == (second.status_code, second.json()["code"])
    assert "1" == second.headers["Retry-After"]
    assert "queued" == small["state"]
    assert [202, 202] == [accepted.status_code, third.status_code]
    assert 0 == bodies.taken
