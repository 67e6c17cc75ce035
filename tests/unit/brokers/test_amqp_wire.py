"""However a connection's bytes are cut into pieces, the same messages are in them."""

import asyncio

import pytest
from pamqp import frame
from pamqp.body import ContentBody
from pamqp.commands import Basic, Channel, Connection
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from backburner.brokers.amqp.envelope import PLAIN
from backburner.brokers.amqp.link import kinds
from backburner.brokers.amqp.wire import HEARTBEAT, Wire
from backburner.domain.message import WORK_AVAILABLE

RECEIVES, SENDS, OTHER = 1, 2, 3


class Witness:
    """Notes what the wire tells."""

    def __init__(self):
        self.told = []

    def delivered(self, tag, name, body):
        self.told.append(("delivered", tag, name, body))

    def confirmed(self, tag, *, multiple, kept):
        self.told.append(("confirmed", tag, multiple, kept))

    def returned(self, queue):
        self.told.append(("returned", queue))

    def blocked(self, reason):
        self.told.append(("blocked", reason))

    def ended(self, reason):
        self.told.append(("ended", reason))


def delivery(tag, properties, *bodies):
    size = sum(map(len, bodies))
    frames = [
        Basic.Deliver("ctag", tag, False, "", "jobs"),
        ContentHeader(body_size=size, properties=properties),
        *[ContentBody(body) for body in bodies],
    ]
    return [frame.marshal(each, RECEIVES) for each in frames]


PERSISTENT = Basic.Properties(content_type="application/json", delivery_mode=2)
NAMED = Basic.Properties(message_id="m-1", headers={"n": 1})
RETURNED = [
    Basic.Return(312, "NO_ROUTE", "", "gone"),
    ContentHeader(body_size=2, properties=PERSISTENT),
    ContentBody(b"{}"),
]
TAKEN = [
    *delivery(1, PERSISTENT, WORK_AVAILABLE),
    *delivery(2, NAMED, b"one ", b"two"),
    *delivery(3, NAMED),
    *[frame.marshal(each, SENDS) for each in RETURNED],
    frame.marshal(Basic.Ack(7, multiple=True), SENDS),
    frame.marshal(Basic.Nack(8), SENDS),
]
LEFT = [
    frame.marshal(Connection.Blocked("low on memory"), 0),
    frame.marshal(Basic.Ack(1), OTHER),
    frame.marshal(Heartbeat(), 0),
    frame.marshal(Channel.Close(406, "timeout", 0, 0), RECEIVES),
]
RECEIVED = [
    ("delivered", 1, "", WORK_AVAILABLE),
    ("delivered", 2, "m-1", b"one two"),
    ("delivered", 3, "m-1", b""),
    ("ended", "the server closed the channel"),
]
SENT = [
    ("returned", "gone"),
    ("confirmed", 7, True, True),
    ("confirmed", 8, False, False),
    ("blocked", "low on memory"),
]


@pytest.fixture
async def wire():
    return Wire(PLAIN)


@pytest.fixture
def watched(wire):
    receiver, publisher = Witness(), Witness()
    wire.receive_on(RECEIVES, receiver)
    wire.publish_on(SENDS, publisher)
    return receiver, publisher


def feed(wire, pieces):
    wire._reader = asyncio.StreamReader()
    wire._loop = asyncio.get_running_loop()
    for piece in pieces:
        wire._sift(piece)
    return bytes(wire._rest).replace(HEARTBEAT, b"")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 64, 1000])
async def test_pieces_of_any_size_bring_the_same(wire, watched, size):
    data = b"".join(TAKEN + LEFT)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    left = feed(wire, pieces)

    assert [RECEIVED, SENT] == [witness.told for witness in watched]
    assert b"".join(LEFT).replace(HEARTBEAT, b"") == left


async def test_what_nobody_watches_is_left_to_the_driver(wire):
    data = b"".join(TAKEN)

    assert data == feed(wire, [data])


async def test_a_header_that_nobody_can_read_loses_no_message(wire, watched):
    method, header, body = delivery(1, NAMED, b"body")
    broken = header[:-8] + b"\xff" * 7 + header[-1:]
    feed(wire, [method + broken + body])

    assert [("delivered", 1, "", b"body")] == watched[0].told


async def test_whoever_watches_is_told_of_the_end_once(wire, watched):
    feed(wire, [frame.marshal(Connection.Close(320, "CONNECTION_FORCED", 0, 0), 0)])
    wire.abort("again")

    for witness in watched:
        assert [("ended", "CONNECTION_FORCED")] == witness.told


@pytest.mark.parametrize(
    ("version", "dead", "types"),
    [
        ((), False, [None]),
        ((3, 7, 28), False, [None]),
        ((3, 8, 0), False, ["quorum", None]),
        ((3, 9, 5), True, [None]),
        ((3, 10, 8), True, ["quorum", None]),
        ((4, 1, 0), False, ["quorum", "quorum", None]),
    ],
)
def test_the_best_kind_of_queue_that_a_version_has_is_tried_first(version, dead, types):
    found = kinds(version, dead=dead)

    assert types == [kind.get("x-queue-type") for kind in found]
    assert {dead} == {"x-message-ttl" in kind for kind in found}
    assert ("x-delivery-limit" in found[0]) == (version >= (4,))
