"""A page of another origin in a real browser, with a stream token and without."""

import pytest

from backburner import Owner
from tests.chromium import a_page, visited

TYPES = ["job.queued", "job.started", "job.succeeded"]
ANN, BOB = Owner("acme", "ann"), Owner("acme", "bob")


@pytest.fixture
async def page():
    async with a_page() as served:
        yield served


async def job_and_token(server):
    """Return a job that waits, as its owner made it, and a token for its stream."""
    headers = server.shown(await server.key("acme", "jobs:read", "jobs:write"))
    asked = {"capability": "test.wait", "input": {}}
    job = (await server.client.post("/v1/jobs", json=asked, headers=headers)).json()
    made = await server.client.post(
        "/v1/stream-tokens", json={"job_id": job["id"]}, headers=headers
    )
    return job["id"], made.json()["token"]


def asks_of(server, job, other, token):
    """Have a page try with a token, with one for another job, and without."""
    jobs, sockets = f"{server.url}/v1/jobs", server.url.replace("http", "ws") + "/v1/ws"
    streams = {
        "stream": f"{jobs}/{job}/events?token={token}",
        "stream of another": f"{jobs}/{other}/events?token={token}",
        "stream without": f"{jobs}/{job}/events",
        "everything": f"{server.url}/v1/events?token={token}",
    }
    followed = {"subscribe": {"job_id": job}}
    return [
        *(
            {"do": "stream", "name": name, "url": url, "types": TYPES}
            for name, url in streams.items()
        ),
        {"do": "socket", "name": "socket", "url": f"{sockets}?token={token}"}
        | followed,
        {"do": "socket", "name": "socket without", "url": sockets} | followed,
        {"do": "get", "name": "get", "url": f"{jobs}/{job}?token={token}"},
        {
            "do": "get",
            "name": "cookie",
            "url": jobs,
            "options": {"credentials": "include"},
        },
    ]


async def test_a_page_of_a_listed_origin_follows_a_job_by_a_token_only(
    serve, page, tmp_path
):
    server = await serve(keyed=True, limits={"cors_origins": (page.origin,)})
    job, token = await job_and_token(server)
    other, _ = await job_and_token(server)
    page.asks = asks_of(server, job, other, token)
    async with visited(page, tmp_path / "browser"):
        await page.until("stream", "job.started")
        await page.until("socket", "job.started")
        server.release.set()
        ended = await page.until("stream", "job.succeeded")
        await page.until("socket", "job.succeeded")
        without = (
            "stream of another",
            "stream without",
            "everything",
            "socket without",
        )
        for name in without:
            await page.until(name, "closed")
        answered = [await page.until(name, "answered") for name in ("get", "cookie")]

    assert job == ended["data"]["job_id"]
    assert TYPES == page.types_of("stream")[:3]
    assert {name: ["closed"] for name in without} == {
        name: page.types_of(name) for name in without
    }
    assert [401, 401] == [said["status"] for said in answered]


async def test_a_page_of_a_listed_origin_follows_a_topic_by_a_token_only(
    serve, page, tmp_path
):
    server = await serve(
        keyed=True, works=False, limits={"cors_origins": (page.origin,)}
    )
    headers = server.shown(await server.key("acme", "jobs:read", user="ann"))
    made = await server.client.post(
        "/v1/stream-tokens", json={"topic": "orders"}, headers=headers
    )
    topic, token = f"{server.url}/v1/events?after=0&topic=", made.json()["token"]
    urls = {
        "orders": f"{topic}orders&token={token}",
        "another topic": f"{topic}invoices&token={token}",
        "no token": f"{topic}orders",
        "no topic": f"{server.url}/v1/events?after=0&token={token}",
    }
    page.asks = [
        {"do": "stream", "name": name, "url": url, "types": ["order.paid"]}
        for name, url in urls.items()
    ]

    async def pay(number, to, name="orders"):
        await server.backburner.transact(
            lambda tx: tx.publish(name, "order.paid", {"number": number}, to=to)
        )

    await pay(1, BOB)
    await pay(2, ANN, "invoices")
    await pay(3, ANN)
    async with visited(page, tmp_path / "browser"):
        await page.until("orders", "order.paid")
        await pay(4, ANN)
        for name in ("another topic", "no token", "no topic"):
            await page.until(name, "closed")
        await page.count("orders", 2)

    read = [said["data"]["data"]["number"] for said in page.said if "data" in said]
    assert [3, 4] == read
    assert {"orders"} == {said["name"] for said in page.said if "data" in said}


async def test_a_page_of_another_origin_gets_nothing_even_by_a_token(
    serve, page, tmp_path
):
    server = await serve(keyed=True, limits={"cors_origins": ("http://a.example",)})
    job, token = await job_and_token(server)
    page.asks = asks_of(server, job, job, token)
    async with visited(page, tmp_path / "browser"):
        for ask in page.asks:
            refusal = "blocked" if ask["do"] == "get" else "closed"
            await page.until(ask["name"], refusal)

    assert {"blocked", "closed"} == {said["type"] for said in page.said}


@pytest.mark.parametrize(
    ("host", "statuses"),
    [
        pytest.param("localhost", [200, 202, 403, 204, 401], id="same site"),
        pytest.param("127.0.0.1", [401, 401, 401, 204, 401], id="another site"),
    ],
)
async def test_a_page_logs_in_and_its_cookie_works_from_its_own_site_only(
    serve, tmp_path, host, statuses
):
    steps = {
        "read": ("/v1/jobs", "GET", False),
        "change": ("/v1/batches", "POST", True),
        "change without": ("/v1/batches", "POST", False),
        "log out": ("/v1/session", "DELETE", True),
        "read again": ("/v1/jobs", "GET", False),
    }
    async with a_page(host) as page:
        server = await serve(
            keyed=True, works=False, limits={"cors_origins": (page.origin,)}
        )
        asked = {"url": server.url.replace("127.0.0.1", "localhost")}
        asked["key"] = await server.key("acme")
        asked["then"] = [
            {"step": step, "path": path, "method": method, "shows": shows}
            for step, (path, method, shows) in steps.items()
        ]
        page.asks = [{"do": "login", "name": "login", **asked}]
        async with visited(page, tmp_path / "browser"):
            done = await page.until("login", "done")
            answered = [await page.until(step, "answered") for step in steps]

    assert (200, "") == (done["status"], done["cookie"]), "no script sees the cookie"
    assert statuses == [said["status"] for said in answered]
