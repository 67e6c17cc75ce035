"""Secrets follow from the master key; signatures are those of Standard Webhooks."""

import base64
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.webhooks import webhook
from backburner.domain.webhooks.webhook import Endpoint
from backburner.testing.samples import ANN, NOON

MASTER = b"m" * 32
DAY = timedelta(hours=24) // timedelta(milliseconds=1)
SECRET = "whsec_" + base64.b64encode(bytes(range(24))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 25))).decode()


def an_endpoint(**fields):
    usual = {
        "id": "ep_1",
        "owner": ANN,
        "url": "https://example.com/hook?token=shh",
        "created_at": NOON,
    }
    return Endpoint(**(usual | fields))


def is_signed(secrets, signatures, **changed):
    usual = {"message_id": "msg_1", "timestamp": 1_700_000_000, "body": b"{}"}
    return webhook.is_signed(secrets, signatures, **(usual | changed))


def test_a_secret_has_32_bytes_and_depends_on_master_endpoint_and_version():
    made = {
        webhook.secret(MASTER, "ep_1", 1),
        webhook.secret(b"n" * 32, "ep_1", 1),
        webhook.secret(MASTER, "ep_2", 1),
        webhook.secret(MASTER, "ep_1", 2),
        webhook.secret(MASTER, "ep_", 11),
    }

    assert 5 == len(made)
    assert all(text.startswith("whsec_") for text in made)
    assert {32} == {len(base64.b64decode(text[6:], validate=True)) for text in made}


def test_a_secret_is_the_same_every_time():
    assert webhook.secret(MASTER, "ep_1", 1) == webhook.secret(MASTER, "ep_1", 1)


def test_a_new_endpoint_has_one_secret():
    assert (1,) == webhook.live_versions(an_endpoint(), NOON)


@pytest.mark.parametrize(
    ("passed", "live"), [(0, (2, 1)), (DAY - 1, (2, 1)), (DAY, (2,)), (2 * DAY, (2,))]
)
def test_the_old_secret_signs_for_a_day_beside_the_new_one(passed, live):
    rotated = webhook.rotate(an_endpoint(), now=NOON)

    assert live == webhook.live_versions(rotated, NOON + passed)


def test_a_second_rotation_ends_the_oldest_secret_at_once():
    twice = webhook.rotate(webhook.rotate(an_endpoint(), now=NOON), now=NOON + 1)

    assert (3, 2) == webhook.live_versions(twice, NOON + 1)


def test_an_endpoint_does_not_show_its_url_by_accident():
    assert "shh" not in repr(an_endpoint())


def test_the_signature_is_the_one_of_the_specification():
    # The example of the specification's own libraries.
    signed = webhook.sign(
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )

    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == signed


@given(st.binary(max_size=200), st.integers(0, 2**40))
def test_what_is_signed_is_found_signed(body, timestamp):
    signed = webhook.sign([SECRET], "msg_1", timestamp, body)

    assert is_signed([SECRET], signed, timestamp=timestamp, body=body)
    assert is_signed([OTHER, SECRET], f"v1,x {signed} v1a,y", timestamp=timestamp,
                     body=body)  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {"message_id": "msg_2"},
        {"timestamp": 1_700_000_001},
        {"body": b"{ }"},
        {"body": b""},
    ],
)
def test_nothing_that_is_signed_can_be_changed(changed):
    signed = webhook.sign([SECRET], "msg_1", 1_700_000_000, b"{}")

    assert is_signed([SECRET], signed)
    assert not is_signed([SECRET], signed, **changed)


@pytest.mark.parametrize(
    "signatures", ["", " ", "v1,", "v1", "v2,{}", "{}", "v1,{}x", "v1a,{}", "é\udc80"]
)
def test_anything_else_is_no_signature(signatures):
    made = webhook.sign([SECRET], "msg_1", 1_700_000_000, b"{}").removeprefix("v1,")

    assert not is_signed([SECRET], signatures.replace("{}", made))


def test_another_secret_makes_another_signature():
    signed = webhook.sign([OTHER], "msg_1", 1_700_000_000, b"{}")

    assert not is_signed([SECRET], signed)
    assert not is_signed([], signed)


def test_a_secret_may_come_without_prefix_and_padding():
    signed = webhook.sign([SECRET], "msg_1", 1_700_000_000, b"{}")

    assert is_signed([SECRET.removeprefix("whsec_")], signed)
    assert is_signed([webhook.secret(MASTER, "ep_1", 1).rstrip("=")], "v1,") is False


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_!", "whsec_é", "whsec_a"])
def test_what_is_no_secret_is_said_so(text):
    with pytest.raises(ValueError, match="whsec_ followed by base64"):
        webhook.sign([text], "msg_1", 1, b"")
