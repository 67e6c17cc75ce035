"""Requests of handlers: bounded, checked at every redirect, classified for retries."""

import asyncio
from contextlib import AsyncExitStack, aclosing
from datetime import timedelta

import pytest

from backburner import (
    Backburner,
    Context,
    HttpResponse,
    PermanentError,
    RetryPolicy,
    Settings,
    Throttled,
    TransientError,
    capability,
)
from backburner.clock import SystemClock
from backburner.domain.webhooks.address import Reach
from backburner.egress.fetching import GuardedFetcher
from backburner.engine.run.outbound import Http, HttpLimits
from backburner.testing.doubles import FakeContext
from tests.egress.conftest import LONG, NOBODY
from tests.egress.receiver import answers, babbles, cuts, drips, slams

OK = b"HTTP/1.1 200 OK\r\n"
KIB = 1024
MOST = 1024 * KIB
SHORT = 1.0
BRIEF_CONNECT = 3.0
"""Long enough to connect on a busy machine; a refusal takes all of it."""


async def at_home(_host, _port):
    """Resolve every name to this machine."""
    return ("127.0.0.1",)


@pytest.fixture
async def http():
    """Build clients for handlers, all closed at the end."""
    async with AsyncExitStack() as stack:

        def build(reach=None, *, seconds=LONG, connect=LONG):
            fetcher = GuardedFetcher(
                reach or Reach.read(["127.0.0.1", "receiver.test"]),
                most=MOST,
                connect_seconds=connect,
                resolve=at_home,
                trust=NOBODY,
            )
            stack.push_async_callback(fetcher.close)
            return Http(fetcher, SystemClock(), HttpLimits(MOST, seconds))

        yield build


async def code_of(kind, call):
    with pytest.raises(kind) as raised:
        await call
    assert kind is type(raised.value)
    return raised.value.problem_code


async def test_get_returns_status_headers_and_body(http, receiving):
    receiver = await receiving(answers(404, body=b"none \xe9", X_Odd="y"))
    url = receiver.url()
    said = await http().get(url, headers={"Accept": "text/plain", "X-Key": "k"})

    assert (404, b"none \xe9", url) == (said.status, said.body, said.url)
    assert ("y", "none �") == (said.headers["x-odd"], said.text())
    (request,) = receiver.requests
    assert "GET /hook?key=1 HTTP/1.1" == request.line
    assert {
        "host": f"127.0.0.1:{receiver.port}",
        "accept": "text/plain",
        "accept-encoding": "identity",
        "user-agent": "Backburner",
        "x-key": "k",
    } == request.headers


async def test_post_sends_bytes_or_json(http, receiving):
    receiver = await receiving(answers(200, body=b'{"a": 1}'))
    client = http()
    said = await client.post(receiver.url(), json={"b": [2]})
    await client.post(receiver.url(), content=b"\0\xff")

    assert {"a": 1} == said.raise_for_status().json()
    assert [b'{"b":[2]}', b"\0\xff"] == [r.body for r in receiver.requests]
    assert "application/json" == receiver.requests[0].headers["content-type"]
    assert "content-type" not in receiver.requests[1].headers


async def test_patch_sends_bytes_or_json_and_follows_no_redirect(http, receiving):
    elsewhere = await receiving(answers(200))
    receiver = await receiving(answers(307, Location=elsewhere.url()))
    said = await http().patch(receiver.url(), json={"b": [2]})
    await http().patch(receiver.url(), content=b"c")

    assert 307 == said.status
    assert "PATCH /hook?key=1 HTTP/1.1" == receiver.requests[0].line
    assert [b'{"b":[2]}', b"c"] == [r.body for r in receiver.requests]
    assert "application/json" == receiver.requests[0].headers["content-type"]
    assert [] == elsewhere.requests


def ten_gigabytes(head, sent):
    """Answer with 10 GB, and note how many bytes were taken."""

    async def behave(writer):
        writer.write(OK + head + b"\r\n")
        for _ in range(10_000):
            writer.write(bytes(MOST))
            await writer.drain()
            sent.append(MOST)

    return behave


@pytest.mark.parametrize("head", [b"Content-Length: 10485760000\r\n", b""])
async def test_a_server_that_sends_10_gb_is_left_at_the_limit(http, receiving, head):
    sent = []
    receiver = await receiving(ten_gigabytes(head, sent))
    refused = await code_of(PermanentError, http().get(receiver.url(), limit=KIB))
    await receiver.deserted()

    assert "HTTP_TOO_LARGE" == refused
    assert sum(sent) < 64 * MOST, "what the sockets hold, not 10 GB"


async def test_an_answer_of_exactly_the_limit_is_taken(http, receiving):
    receiver = await receiving(answers(200, body=bytes(KIB)))
    said = await http().get(receiver.url(), limit=KIB)
    refused = await code_of(PermanentError, http().get(receiver.url(), limit=KIB - 1))

    assert (KIB, "HTTP_TOO_LARGE") == (len(said.body), refused)


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(drips(b"HTTP/1.1 2"), id="a first line that never ends"),
        pytest.param(drips(OK + b"X: "), id="headers that never end"),
        pytest.param(drips(OK + b"\r\n"), id="a body that never ends"),
    ],
)
async def test_a_server_that_never_ends_is_left_when_time_is_over(
    http, receiving, behave
):
    receiver = await receiving(behave)
    failed = await code_of(
        TransientError, http().get(receiver.url(), limit=MOST, seconds=SHORT)
    )
    await receiver.deserted()

    assert "HTTP_TIMEOUT" == failed


async def test_redirects_that_never_end_are_not_followed_for_ever(http, receiving):
    receiver = await receiving(answers(302, Location="/again"))
    refused = await code_of(PermanentError, http().get(receiver.url()))

    assert "HTTP_REDIRECTS" == refused
    assert 6 == len(receiver.requests)


async def test_a_redirect_to_a_private_address_is_refused(http, receiving):
    inside = await receiving(answers(200, body=b"secret"))
    outside = await receiving(answers(302, Location=inside.url()))
    client = http(Reach.read(["receiver.test"]))
    url = outside.url("receiver.test")
    refused = await code_of(PermanentError, client.get(url))

    assert "HTTP_NOT_ALLOWED" == refused
    assert (1, 0) == (outside.connections, inside.connections)


async def test_a_redirect_to_a_name_of_a_private_address_is_refused(http, receiving):
    inside = await receiving(answers(200, body=b"secret"))
    outside = await receiving(answers(302, Location=inside.url("public.example")))
    reach = Reach.read(["receiver.test"], ports=(inside.port,), is_plain_allowed=True)
    client = http(reach, connect=BRIEF_CONNECT)
    url = outside.url("receiver.test")
    refused = await code_of(TransientError, client.get(url))
    allowed = Reach.read(["receiver.test", "public.example"])
    control = await http(allowed).get(url)

    assert ("HTTP_REFUSED", b"secret") == (refused, control.body)
    assert 1 == inside.connections, "only the one that was allowed"


async def test_a_redirect_is_followed_without_credentials(http, receiving):
    end = await receiving(answers(200, body=b"end"))
    start = await receiving(answers(302, Location=end.url("receiver.test")))
    headers = {"Authorization": "Bearer x", "X-Api-Key": "y", "Accept": "a/b"}
    said = await http().get(start.url(), headers=headers)

    assert (b"end", end.url("receiver.test")) == (said.body, said.url)
    (first,), (second,) = start.requests, end.requests
    assert ("Bearer x", "y") == (
        first.headers["authorization"],
        first.headers["x-api-key"],
    )
    assert {"host", "accept", "accept-encoding", "user-agent"} == {*second.headers}
    assert "a/b" == second.headers["accept"]


async def test_a_redirect_within_an_origin_keeps_its_headers(http, receiving):
    receiver = await receiving(answers(302, Location="/next"))
    with pytest.raises(PermanentError):
        await http().get(receiver.url(), headers={"X-Key": "k"}, redirects=1)

    assert ["k", "k"] == [request.headers["x-key"] for request in receiver.requests]
    assert "GET /next HTTP/1.1" == receiver.requests[1].line


async def test_a_redirect_is_the_answer_to_a_post_and_if_none_is_wanted(
    http, receiving
):
    receiver = await receiving(answers(307, Location="/next"))
    posted = await http().post(receiver.url())
    got = await http().get(receiver.url(), redirects=0)

    assert [307, 307, 2] == [posted.status, got.status, len(receiver.requests)]


@pytest.mark.parametrize(
    ("hosts", "is_reached"),
    [
        (["receiver.test"], True),
        (["*.test"], True),
        (["test"], False),
        (["*.receiver.test"], False),
        (["receiver.test:1"], False),
        ([], False),
    ],
)
async def test_a_call_reaches_only_the_hosts_it_names(
    http, receiving, hosts, is_reached
):
    receiver = await receiving(answers(200))
    call = http().get(receiver.url("receiver.test"), hosts=hosts)
    if is_reached:
        assert (await call).is_success
    else:
        assert "HTTP_NOT_ALLOWED" == await code_of(PermanentError, call)
        assert 0 == receiver.connections


async def test_a_redirect_leaves_the_hosts_of_a_call_neither(http, receiving):
    elsewhere = await receiving(answers(200))
    receiver = await receiving(answers(302, Location=elsewhere.url()))
    url, hosts = receiver.url("receiver.test"), ["receiver.test"]
    refused = await code_of(PermanentError, http().get(url, hosts=hosts))

    assert ("HTTP_NOT_ALLOWED", 0) == (refused, elsewhere.connections)


@pytest.mark.parametrize(
    "behave", [slams, cuts, babbles], ids=["closes", "stops short", "speaks no HTTP"]
)
async def test_an_answer_that_is_cut_is_worth_another_attempt(http, receiving, behave):
    receiver = await receiving(behave)

    assert "HTTP_CUT" == await code_of(TransientError, http().get(receiver.url()))


@pytest.mark.parametrize(
    ("status", "headers", "kind", "wait"),
    [
        (429, {"Retry_After": "7"}, Throttled, 7.0),
        (429, {}, Throttled, None),
        (503, {"Retry_After": "9"}, Throttled, 9.0),
        (503, {}, TransientError, None),
        (500, {"Retry_After": "9"}, TransientError, None),
        (408, {}, TransientError, None),
        (404, {}, PermanentError, None),
        (400, {}, PermanentError, None),
        (304, {}, PermanentError, None),
    ],
)
async def test_a_status_is_raised_as_what_it_means(
    http, receiving, status, headers, kind, wait
):
    receiver = await receiving(answers(status, **headers))
    said = await http().get(receiver.url())
    with pytest.raises(kind) as raised:
        said.raise_for_status()

    assert (kind, "HTTP_STATUS") == (type(raised.value), raised.value.problem_code)
    assert wait == getattr(raised.value, "retry_after", None)
    assert f"the server answered {status}" == str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {"limit": MOST + 1},
        {"limit": -1},
        {"seconds": LONG + 1},
        {"seconds": 0},
        {"hosts": ["http://a.example"]},
        {"hosts": ["*.a.example:80"]},
        {"headers": {"Host": "other.example"}},
        {"headers": {"Transfer-Encoding": "chunked"}},
        {"headers": {"X": "a\r\nHost: b"}},
        {"headers": {"X Y": "a"}},
    ],
    ids=str,
)
async def test_a_call_beyond_what_is_allowed_is_not_sent(http, receiving, options):
    receiver = await receiving(answers(200))
    refused = await code_of(PermanentError, http().get(receiver.url(), **options))

    assert ("HTTP_INVALID", 0) == (refused, receiver.connections)


async def test_a_cancelled_handler_hangs_up(http, receiving):
    receiver = await receiving(drips(OK))
    asking = asyncio.ensure_future(http().get(receiver.url()))
    await receiver.called.wait()
    asking.cancel()
    await receiver.deserted()

    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.fixture
async def working(store_url):
    """Run a handler that gets a URL as a job; public servers are all it may reach."""
    async with AsyncExitStack() as stack:

        async def run(url, **settings):
            at_once = RetryPolicy(max_attempts=2, base=timedelta(), jitter=timedelta())

            @capability("get", retry=at_once)
            async def get(ctx: Context, value: str) -> str:
                return (await ctx.http.get(value)).raise_for_status().text()

            given = Settings(store=store_url, poll_seconds=0.2, **settings)
            backburner = Backburner(given, capabilities=[get])
            await stack.enter_async_context(backburner)
            await backburner.start_worker()
            ticket = await backburner.submit(get, url)
            return backburner, ticket

        yield run


async def test_a_handler_asks_another_server(working, receiving):
    receiver = await receiving(answers(200, body=b"hello"))
    _, ticket = await working(receiver.url(), webhook_allow=("127.0.0.1",))

    assert "hello" == await ticket.result()


@pytest.mark.parametrize(
    ("behave", "attempts", "code"),
    [
        pytest.param(answers(500), 2, "HTTP_STATUS", id="500"),
        pytest.param(slams, 2, "HTTP_CUT", id="cut"),
        pytest.param(answers(404), 1, "HTTP_STATUS", id="404"),
        pytest.param(
            answers(200, body=bytes(2 * KIB)), 1, "HTTP_TOO_LARGE", id="large"
        ),
    ],
)
async def test_a_job_is_retried_by_what_went_wrong(
    working, receiving, behave, attempts, code
):
    receiver = await receiving(behave)
    allowed = {"webhook_allow": ("127.0.0.1",), "http_limit": KIB}
    _, ticket = await working(receiver.url(), **allowed)
    job = await ticket.wait()

    assert (attempts, code) == (len(receiver.requests), job.error.code)


async def test_a_job_that_is_told_when_to_come_back_waits_at_no_cost(
    working, receiving
):
    receiver = await receiving(answers(429, Retry_After="3600"))
    _, ticket = await working(receiver.url(), webhook_allow=("127.0.0.1",))
    async with aclosing(ticket.events()) as events:
        seen = [await anext(events) for _ in range(3)]
    job = await ticket.job()

    assert ["job.queued", "job.started", "job.throttled"] == [e.type for e in seen]
    assert (0, 1) == (job.attempt, len(receiver.requests))
    assert 3_000_000 < job.run_at - job.created_at


async def test_a_handler_does_not_reach_this_machine_unless_it_is_allowed(
    working, receiving
):
    receiver = await receiving(answers(200))
    _, ticket = await working(receiver.url())
    job = await ticket.wait()

    assert ("HTTP_NOT_ALLOWED", 0) == (job.error.code, receiver.connections)


async def test_a_fake_context_answers_by_url(receiving):
    receiver = await receiving(answers(200))
    url = "https://a.example/x"
    ctx = FakeContext(answers=[HttpResponse(503, {"retry-after": "5"}, b"12", url)])
    said = await ctx.http.get(url)
    failed = await code_of(TransientError, ctx.http.get(receiver.url()))
    refused = await code_of(PermanentError, ctx.http.get(url, limit=1))

    assert (503, b"12", 5.0) == (said.status, said.body, said.retry_after)
    assert ("HTTP_REFUSED", "HTTP_TOO_LARGE", 0) == (
        failed,
        refused,
        receiver.connections,
    )
    assert [url, receiver.url(), url] == [request.url for request in ctx.requests]
