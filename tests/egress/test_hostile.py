"""Addresses that lead inside are refused when they are connected to."""

import asyncio
import socket

import httpcore2
import httpx2
import pytest

from backburner.domain.webhooks.address import Reach
from backburner.domain.webhooks.webhook import Endpoint
from backburner.engine.webhooks.delivery import Deliver, WebhookMessage, WebhookSender
from backburner.engine.webhooks.receiver_limits import ReceiverLimits
from backburner.ports.egress import Silence
from backburner.testing.doubles import FrozenClock, SeededDice
from backburner.testing.samples import ANN, NOON
from tests.egress.receiver import answers

SHORT = 0.05
REACHING = [
    "127.0.0.1",
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "0x7f000001",
    "0x7f.1",
    "127.1",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "localhost",
]
"""Ways to write this machine, each tried without the guard below."""
INSIDE = [
    *REACHING,
    *("0.0.0.0", "0", "[::]", "[::1]", "127.0.0.53", "127.255.255.254"),  # noqa: S104
    *("[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2001::7f00:1]"),
    *("[fec0::1]", "[fd00:ec2::254]", "[fe80::1]", "[ff02::1]", "10.0.0.1"),
    *("172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "2852039166"),
    *("0xa9fea9fe", "168.63.129.16", "198.18.0.1", "224.0.0.1", "255.255.255.255"),
]
FORMS = [
    "http://user:secret@{}/",
    "http://user@{}/",
    "http://example.com@{}/",
    "http://example.com\\@{}/",
    "http://{}\\.example.com/",
    "http://127%2e0.0.1/",
    "http://１２７.0.0.1/",  # noqa: RUF001 - that is the trap
    "gopher://{}/",
    "file:///etc/passwd",
    "http://[::1%25lo]/",
    "not a URL",
]


def strangers(*ports):
    """Everybody who is public, by http, on these ports."""
    return Reach.read(is_plain_allowed=True, ports=ports)


async def post(egress, url):
    return await egress.post(url, headers={}, body=b"{}")


@pytest.mark.parametrize("host", INSIDE)
async def test_an_address_inside_is_refused_and_not_called(egress, receiving, host):
    victim = await receiving(answers(200))
    guarded = egress(strangers(victim.port), connect=SHORT)

    assert Silence.REFUSED is await post(guarded, victim.url(host))
    assert 0 == victim.connections


@pytest.mark.parametrize("form", FORMS)
async def test_a_url_of_a_hostile_form_is_refused_and_not_called(
    egress, receiving, form
):
    victim = await receiving(answers(200))
    guarded = egress(strangers(victim.port), connect=SHORT)

    url = form.format(f"127.0.0.1:{victim.port}")
    assert Silence.REFUSED is await post(guarded, url)
    assert 0 == victim.connections


@pytest.mark.parametrize("host", REACHING)
async def test_control_without_the_guard_the_same_address_is_reached(receiving, host):
    victim = await receiving(answers(200))
    raw = host.strip("[]").encode()

    async with httpcore2.AsyncConnectionPool() as unguarded:
        url = httpcore2.URL(scheme=b"http", host=raw, port=victim.port, target=b"/")
        answer = await unguarded.request("POST", url, headers={"Host": "x"})

    assert 200 == answer.status
    assert 1 == victim.connections


async def test_an_address_inside_is_reached_when_it_is_allowed(egress, receiving):
    receiver = await receiving(answers(200))
    guarded = egress(Reach.read([f"127.0.0.1:{receiver.port}"]))

    assert 200 == (await post(guarded, receiver.url())).status
    other = egress(Reach.read([f"127.0.0.1:{receiver.port - 1}"]), connect=SHORT)
    assert Silence.REFUSED is await post(other, receiver.url())


class Names:
    """A server of names whose answers change; it counts how often it is asked."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = 0

    def __call__(self, host, *_, **__):
        # The HTTP stack may ask for bytes: a stub for texts alone would prove nothing.
        name = host.decode() if isinstance(host, bytes) else host
        if name != "rebind.test":
            return REAL(host, *_, **__)
        self.asked += 1
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, _[0]))
            for address in found
        ]


REAL = socket.getaddrinfo
PUBLIC = "127.0.0.2"
"""Stands for a public address: it is allowed, and can be listened on."""
PRIVATE = "127.0.0.1"


@pytest.fixture
async def two(receiving):
    """Somebody outside and somebody inside, on the same port."""
    outside = await receiving(answers(200, Connection="close"), host=PUBLIC)
    inside = await receiving(answers(200), host=PRIVATE, port=outside.port)
    return outside, inside


@pytest.fixture
def outward(egress, two):
    """Build egresses for which the one outside is public."""
    reach = Reach.read([PUBLIC], ports=(two[0].port,), is_plain_allowed=True)
    return lambda **options: egress(reach, **options)


async def test_a_name_is_resolved_once_and_the_judged_address_is_called(
    monkeypatch, two, outward
):
    outside, inside = two
    names = Names([PUBLIC], [PRIVATE])
    monkeypatch.setattr(socket, "getaddrinfo", names)

    assert 200 == (await post(outward(), outside.url("rebind.test"))).status
    assert (1, 1, 0) == (names.asked, outside.connections, inside.connections)
    assert "rebind.test" in outside.requests[0].headers["host"]


async def test_a_name_that_changes_its_mind_is_refused_the_next_time(
    monkeypatch, two, outward
):
    outside, inside = two
    monkeypatch.setattr(socket, "getaddrinfo", Names([PUBLIC], [PRIVATE]))
    url = outside.url("rebind.test")

    assert 200 == (await post(outward(), url)).status
    assert Silence.REFUSED is await post(outward(connect=SHORT), url)
    assert 0 == inside.connections


@pytest.mark.parametrize("answer", [[PUBLIC, PRIVATE], [PRIVATE, PUBLIC]])
async def test_one_bad_address_among_good_ones_is_enough_to_refuse(
    monkeypatch, two, outward, answer
):
    outside, inside = two
    monkeypatch.setattr(socket, "getaddrinfo", Names(answer))

    said = await post(outward(connect=SHORT), outside.url("rebind.test"))

    assert Silence.REFUSED is said
    assert (0, 0) == (outside.connections, inside.connections)


async def test_control_a_client_that_looks_first_and_connects_then_is_deceived(
    monkeypatch, two
):
    outside, inside = two
    monkeypatch.setattr(socket, "getaddrinfo", Names([PUBLIC], [PRIVATE]))
    looked = socket.getaddrinfo("rebind.test", outside.port)

    async with httpx2.AsyncClient(trust_env=False) as careless:
        answer = await careless.post(outside.url("rebind.test"))

    assert PUBLIC == looked[0][4][0]
    assert 200 == answer.status_code
    assert 1 == inside.connections


async def test_an_address_that_is_dead_is_no_end_while_there_are_others(
    monkeypatch, receiving, egress
):
    receiver = await receiving(answers(200), host=PUBLIC)
    monkeypatch.setattr(socket, "getaddrinfo", Names(["127.0.0.3", PUBLIC]))
    guarded = egress(Reach.read(["127.0.0.0/8", "rebind.test"]))

    assert 200 == (await post(guarded, receiver.url("rebind.test"))).status


async def test_whatever_is_wrong_with_an_address_the_message_is_the_same(
    egress, black_hole, closed_port
):
    urls = {
        "inside": "http://10.0.0.1:9/",
        "written as a number": "http://2130706433:9/",
        "with a user": "http://user@example.com:9/",
        "closed": f"http://127.0.0.2:{closed_port}/",
        "silent": f"http://127.0.0.1:{black_hole}/",
        "unknown": "http://nobody.invalid:9/",
    }
    allowed = Reach.read(
        [f"127.0.0.1:{black_hole}", "127.0.0.2"], ports=(9,), is_plain_allowed=True
    )
    clock, dice = FrozenClock(), SeededDice()
    sender = WebhookSender(egress(allowed, connect=SHORT), b"m" * 32, clock)
    deliver = Deliver(sender, ReceiverLimits(clock, dice, slots=100), clock, dice)

    said = {
        name: await deliver(
            Endpoint(f"ep_{name}", ANN, url, NOON), WebhookMessage("m", b"")
        )
        for name, url in urls.items()
    }

    assert 1 == len(set(said.values())), said
    failed = said["inside"]
    assert ("WEBHOOK_REFUSED", True, None) == (
        failed.code,
        failed.retryable,
        failed.retry_after,
    )


HOUR, MINUTE = 3600.0, 60.0


async def test_a_refusal_takes_as_long_as_an_address_that_swallows_everything(
    egress, closed_port, black_hole, monkeypatch
):
    loop = asyncio.get_running_loop()
    clock = loop.time
    ports = [f"127.0.0.1:{port}" for port in (closed_port, black_hole)]
    reach = Reach.read(ports, ports=(9,), is_plain_allowed=True)
    guarded = egress(reach, connect=HOUR, total=2 * HOUR)
    calls = [
        asyncio.create_task(post(guarded, url))
        for url in (*(f"http://{port}/" for port in ports), "http://10.0.0.1:9/")
    ]
    await asyncio.wait(calls, timeout=SHORT)  # for the closed one to have refused

    monkeypatch.setattr(loop, "time", lambda: clock() + HOUR - 10 * MINUTE)
    early, _ = await asyncio.wait(calls, timeout=SHORT)
    monkeypatch.setattr(loop, "time", lambda: clock() + HOUR)
    late, _ = await asyncio.wait(calls, timeout=HOUR / 2)

    assert set() == early, "an address told by its speed what it is"
    assert {*calls} == late
    assert {Silence.REFUSED} == {call.result() for call in calls}
