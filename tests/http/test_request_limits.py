"""A key that asks too often is told so, and when to come back."""

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from backburner.client import AsyncClient
from backburner.http.schemas.jobs import Problem

ECHO = {"capability": "demo.echo", "input": {}}
POLICY = '"key";q=1;w=100'


@pytest.fixture
async def strict(serve):
    """A server of which each key may ask once in a hundred seconds."""
    return await serve(keyed=True, key_rate=0.01)


def told(response):
    return response.headers.get("ratelimit-policy"), response.headers.get("ratelimit")


async def test_one_request_too_many_is_refused_and_does_nothing(strict):
    headers = strict.shown(await strict.key())
    first = await strict.client.post("/v1/jobs", json=ECHO, headers=headers)
    second = await strict.client.post("/v1/jobs", json=ECHO, headers=headers)
    problem = Problem.model_validate(second.json())
    wait = int(second.headers["Retry-After"])
    jobs = await strict.client.get("/v1/jobs", headers=strict.shown(await strict.key()))

    assert (202, 429) == (first.status_code, second.status_code)
    assert "application/problem+json" == second.headers["Content-Type"]
    assert ("TOO_MANY_REQUESTS", True, wait) == (
        problem.code,
        problem.retryable,
        problem.retry_after,
    )
    assert 0 < wait <= 100
    assert (POLICY, '"key";r=0;t=100') == told(first)
    assert (POLICY, f'"key";r=0;t={wait}') == told(second)
    assert 1 == len(jobs.json()["items"])


async def test_each_key_has_an_allowance_of_its_own(strict):
    keys = [await strict.key(), await strict.key(), await strict.key("other")]
    answers = [
        await strict.client.get("/v1/jobs", headers=strict.shown(key))
        for key in [*keys, keys[0]]
    ]

    assert [200, 200, 200, 429] == [answer.status_code for answer in answers]


async def test_what_is_refused_for_another_reason_counts_and_tells_too(serve):
    server = await serve(keyed=True, key_rate=3)
    headers = server.shown(await server.key("default", "jobs:read"))
    missing = await server.client.get("/v1/jobs/job_none", headers=headers)
    denied = await server.client.get("/v1/keys", headers=headers)

    assert (404, 403) == (missing.status_code, denied.status_code)
    assert ('"key";q=3;w=1', '"key";r=2;t=1') == told(missing)
    assert '"key";q=3;w=1' == told(denied)[0]


async def test_a_socket_counts_as_one_request(strict):
    address = strict.url.replace("http", "ws") + "/v1/ws"
    headers = strict.shown(await strict.key())
    async with connect(address, proxy=None, additional_headers=headers):
        pass
    with pytest.raises(InvalidStatus) as refused:
        await connect(address, proxy=None, additional_headers=headers)

    assert 429 == refused.value.response.status_code
    assert POLICY == refused.value.response.headers["RateLimit-Policy"]


async def test_who_shows_no_key_is_not_counted_nor_told(strict):
    answers = [await strict.client.get("/v1/jobs") for _ in range(2)]
    answers += [await strict.client.get("/livez") for _ in range(2)]

    assert [401, 401, 200, 200] == [answer.status_code for answer in answers]
    assert {(None, None)} == {told(answer) for answer in answers}


@pytest.mark.parametrize("options", [{"keyed": True, "key_rate": 0}, {"key_rate": 1}])
async def test_without_a_limit_or_without_keys_nothing_is_counted(serve, options):
    server = await serve(**options)
    headers = server.shown(await server.key())
    answers = [await server.client.get("/v1/jobs", headers=headers) for _ in range(9)]

    assert {200} == {answer.status_code for answer in answers}
    assert {(None, None)} == {told(answer) for answer in answers}


async def test_our_client_waits_as_it_is_told(serve):
    server = await serve(keyed=True, key_rate=1)
    async with AsyncClient(server.url, api_key=await server.key()) as client:
        jobs = [await client.submit("demo.echo", {}) for _ in range(3)]

    assert 3 == len({job.id for job in jobs})
