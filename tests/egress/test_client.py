"""What is sent, how much of the answer is read, and what is never done."""

import asyncio
import gzip
import socket
import ssl
import threading
from contextlib import suppress

import httpcore2
import httpx2
import pytest
import trustme

from backburner.domain.webhooks.address import Reach
from backburner.egress.guard import Bounded, Enough
from backburner.egress.resolver import SystemResolver
from backburner.ports.egress import Silence
from tests.egress.receiver import (
    answers,
    babbles,
    cuts,
    drips,
    hangs,
    pours,
    slams,
)

SHORT = 0.2
OK = b"HTTP/1.1 200 OK\r\n"


async def post(egress, url, body=b"{}", **headers):
    return await egress.post(url, headers=headers, body=body)


async def test_the_body_goes_out_as_it_is_with_the_headers_given(egress, receiving):
    receiver = await receiving(answers(204))
    body = b'{"a": "\xc3\xa9"}\n'

    said = await post(egress(), receiver.url(), body, **{"webhook-id": "m"})

    request = receiver.requests[0]
    assert 204 == said.status
    assert "POST /hook?key=1 HTTP/1.1" == request.line
    assert body == request.body
    assert {
        "host": f"127.0.0.1:{receiver.port}",
        "accept": "*/*",
        "accept-encoding": "identity",
        "webhook-id": "m",
        "content-length": str(len(body)),
    } == request.headers


async def test_headers_of_the_answer_are_found_by_small_names(egress, receiving):
    receiver = await receiving(answers(429, Retry_After="7", X_Odd="\xe9"))

    said = await post(egress(), receiver.url())

    assert (429, "7") == (said.status, said.headers["retry-after"])


async def test_a_connection_is_used_again(egress, receiving):
    receiver = await receiving(answers(200, body=b"thanks"))
    out = egress()

    for _ in range(3):
        await post(out, receiver.url())

    assert (1, 3) == (receiver.connections, len(receiver.requests))


async def test_a_redirect_is_not_followed(egress, receiving):
    inside = await receiving(answers(200))
    receiver = await receiving(answers(302, Location=inside.url()))

    said = await post(egress(), receiver.url())

    assert 302 == said.status
    assert 0 == inside.connections


async def test_no_proxy_of_the_environment_is_used(egress, receiving, monkeypatch):
    proxy = await receiving(answers(200))
    receiver = await receiving(answers(201))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{proxy.port}")

    said = await post(egress(), receiver.url())
    async with httpx2.AsyncClient() as trusting:
        control = await trusting.post(receiver.url())

    assert 201 == said.status
    assert 200 == control.status_code, "the environment's proxy is no proxy"
    assert 1 == proxy.connections


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(hangs, id="hangs"),
        pytest.param(drips(b"HTTP/1.1 2"), id="drips its first line"),
        pytest.param(drips(OK + b"X: "), id="drips its headers"),
        pytest.param(drips(OK + b"Content-Length: 99999\r\n\r\n"), id="drips its body"),
        pytest.param(drips(OK + b"\r\n"), id="drips a body without an end"),
    ],
)
async def test_an_answer_that_is_not_whole_in_time_is_none(egress, receiving, behave):
    receiver = await receiving(behave)

    said = await post(egress(total=SHORT), receiver.url())

    assert Silence.TIMED_OUT is said
    assert 1 == len(receiver.requests)


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(slams, id="says nothing"),
        pytest.param(cuts, id="closes mid-answer"),
        pytest.param(babbles, id="speaks no HTTP"),
        pytest.param(pours(OK, b"X: y\r\n"), id="headers without end"),
        pytest.param(pours(b"", b"HTTP/1.1 100 Go on\r\n\r\n"), id="not yet, for ever"),
    ],
)
async def test_an_answer_that_is_cut_is_none(egress, receiving, behave):
    receiver = await receiving(behave)

    assert Silence.CUT is await post(egress(), receiver.url())


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(OK + b"\r\n", id="without an end"),
        pytest.param(OK + b"Content-Length: 999999999999\r\n\r\n", id="of a terabyte"),
    ],
)
async def test_an_endless_answer_is_read_in_part_and_left(egress, receiving, start):
    receiver = await receiving(pours(start, b"x" * 100))

    said = await post(egress(), receiver.url())

    assert 200 == said.status
    await receiver.deserted()


async def test_a_compressed_answer_is_not_unpacked(egress, receiving):
    bomb = gzip.compress(bytes(10_000_000))
    receiver = await receiving(answers(200, body=bomb, Content_Encoding="gzip"))

    assert 200 == (await post(egress(), receiver.url())).status


async def test_no_more_than_64_kib_are_read_after_each_request():
    stream = Bounded(httpcore2.AsyncMockStream([b"x" * 1024] * 999))

    async def read_on():
        count = 0
        with suppress(Enough):
            while True:
                count += len(await stream.read(100_000))
        return count

    before = await read_on()
    at_the_end = await read_on()
    await stream.write(b"the next request")

    assert (64 * 1024, 0, 64 * 1024) == (before, at_the_end, await read_on())


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def tls(authority):
    """Build the two sides of TLS: a server by some name, and who trusts it."""

    def build(name):
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(name).configure_cert(server)
        return server

    return build


@pytest.fixture
def trusting(egress, authority):
    """An egress to `receiver.test`, which is on this machine."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)

    async def resolve(host, port):
        del host, port
        return ["127.0.0.1"]

    return lambda **options: egress(trust=context, resolve=resolve, **options)


async def test_the_name_of_the_url_is_the_one_that_tls_asks_for(
    receiving, tls, trusting
):
    receiver = await receiving(answers(200), tls=tls("receiver.test"))

    said = await post(trusting(), receiver.url("receiver.test", "https"))

    assert 200 == said.status
    assert f"receiver.test:{receiver.port}" == receiver.requests[0].headers["host"]


async def test_an_endless_answer_over_tls_is_left_too(receiving, tls, trusting):
    endless = pours(OK + b"\r\n", b"x" * 100)
    receiver = await receiving(endless, tls=tls("receiver.test"))

    said = await post(trusting(), receiver.url("receiver.test", "https"))

    assert 200 == said.status
    await receiver.deserted()


async def test_a_certificate_of_another_name_is_not_trusted(receiving, tls, trusting):
    receiver = await receiving(answers(200), tls=tls("other.test"))

    said = await post(trusting(), receiver.url("receiver.test", "https"))

    assert Silence.UNTRUSTED is said
    assert [] == receiver.requests


async def test_a_certificate_of_nobody_known_is_not_trusted(receiving, tls, egress):
    receiver = await receiving(answers(200), tls=tls("127.0.0.1"))

    said = await post(egress(), receiver.url(scheme="https"))

    assert Silence.UNTRUSTED is said
    assert [] == receiver.requests


async def test_a_server_without_tls_is_not_trusted(receiving, trusting):
    receiver = await receiving(babbles, greeting=b"220 smtp.example ESMTP\r\n")

    said = await post(trusting(), receiver.url("receiver.test", "https"))

    assert Silence.UNTRUSTED is said
    assert [] == receiver.requests


@pytest.mark.parametrize("seconds", [{"connect": SHORT}, {"total": SHORT}])
async def test_a_handshake_that_hangs_is_left(receiving, trusting, seconds):
    receiver = await receiving(hangs)

    said = await post(trusting(**seconds), receiver.url("receiver.test", "https"))

    assert Silence.TIMED_OUT is said
    await receiver.deserted()


async def test_a_hanging_server_of_names_costs_its_caller_only_the_connect_time(
    egress, monkeypatch, receiving
):
    asked, answer = asyncio.Event(), socket.getaddrinfo
    loop = asyncio.get_running_loop()
    released = threading.Event()

    def hanging(host, *rest, **more):
        if host != "hanging.test":
            return answer(host, *rest, **more)
        loop.call_soon_threadsafe(asked.set)
        released.wait()
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    receiver = await receiving(answers(200))
    reach = Reach.read(["127.0.0.1", "hanging.test"])
    resolver = SystemResolver(at_once=2)
    slow = asyncio.create_task(
        post(egress(reach, resolve=resolver), "http://hanging.test/")
    )
    await asked.wait()

    beside = await post(egress(reach, resolve=resolver), receiver.url())
    said = await post(egress(reach, connect=SHORT), "http://hanging.test/")
    slow.cancel()
    released.set()

    assert 200 == beside.status
    assert Silence.REFUSED is said
    assert len(await resolver("127.0.0.1", 80)) == 1


async def test_more_questions_than_threads_are_not_asked():
    assert () == await SystemResolver(at_once=0)("127.0.0.1", 80)
