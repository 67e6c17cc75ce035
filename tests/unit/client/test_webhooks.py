"""A webhook is believed if it is signed, and of now."""

import base64
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from backburner.client import ClientError, WebhookError, verify_webhook
from backburner.clock import SystemClock
from backburner.domain.webhooks import webhook

NOW = 1_767_268_800
SECRET = webhook.secret(b"m" * 32, "ep_1", 1)
OLD = webhook.secret(b"m" * 32, "ep_1", 0)
EVENT = {
    "type": "job.succeeded",
    "timestamp": "2026-01-01T12:00:00Z",
    "data": {"id": "job_1", "name": "Bücher"},
}
BODY = json.dumps(EVENT, ensure_ascii=False).encode()


def headers(*, secrets=(SECRET,), timestamp=NOW, body=BODY, message="job_1"):
    return {
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": webhook.sign(secrets, message, timestamp, body),
    }


def code(*args, **kwargs):
    with pytest.raises(WebhookError) as raised:
        verify_webhook(*args, **kwargs)
    assert isinstance(raised.value, ClientError)
    return raised.value.code


def test_a_webhook_is_read():
    assert EVENT == verify_webhook(BODY, headers(), SECRET, now=NOW)


def test_header_names_are_read_in_any_case():
    shouted = {name.upper(): value for name, value in headers().items()}

    assert EVENT == verify_webhook(BODY, shouted, [SECRET], now=NOW)


@pytest.mark.parametrize(
    ("signed_by", "mine"),
    [
        ((SECRET,), [SECRET, OLD]),
        ((OLD,), [SECRET, OLD]),
        ((SECRET, OLD), [OLD]),
        ((SECRET, OLD), [SECRET]),
    ],
)
def test_either_secret_will_do_while_one_is_replaced(signed_by, mine):
    given = headers(secrets=signed_by)

    assert EVENT == verify_webhook(BODY, given, mine, now=NOW)


def test_another_secret_will_not_do():
    assert "WEBHOOK_SIGNATURE" == code(BODY, headers(secrets=[OLD]), SECRET, now=NOW)
    assert "WEBHOOK_SIGNATURE" == code(BODY, headers(), [], now=NOW)


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": "job_2"},
        {"webhook-timestamp": str(NOW + 1)},
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": "v1a,AAAA v2,BBBB"},
    ],
)
def test_nothing_of_the_headers_can_be_changed(changed):
    assert "WEBHOOK_SIGNATURE" == code(BODY, headers() | changed, SECRET, now=NOW)


def test_the_body_counts_byte_for_byte():
    same = json.dumps(EVENT).encode()

    assert EVENT == json.loads(same)
    assert "WEBHOOK_SIGNATURE" == code(same, headers(), SECRET, now=NOW)


@pytest.mark.parametrize("late", [-300, 0, 300])
def test_five_minutes_early_or_late_are_taken(late):
    assert EVENT == verify_webhook(BODY, headers(), SECRET, now=NOW + late)


@pytest.mark.parametrize("late", [-301, 301, 86_400])
def test_more_are_not(late):
    assert "WEBHOOK_TIME" == code(BODY, headers(), SECRET, now=NOW + late)
    assert EVENT == verify_webhook(
        BODY, headers(), SECRET, now=NOW + late, tolerance=86_400
    )


@pytest.mark.parametrize("name", ["id", "timestamp", "signature"])
def test_each_header_is_needed(name):
    given = headers()

    assert "WEBHOOK_HEADERS" == code(BODY, given | {f"webhook-{name}": ""}, SECRET)
    del given[f"webhook-{name}"]
    assert "WEBHOOK_HEADERS" == code(BODY, given, SECRET)


@pytest.mark.parametrize(
    "text", ["now", "-1", "+1", "1.5", "1e9", "1_0", " 1", "٣", "9" * 5000]
)
def test_a_time_is_a_number(text):
    given = headers() | {"webhook-timestamp": text}

    assert "WEBHOOK_HEADERS" == code(BODY, given, SECRET, now=NOW)


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b"{", b"\xff", b"[" * 100_000])
def test_a_signed_body_that_is_no_event_is_refused(body):
    assert "WEBHOOK_BODY" == code(body, headers(body=body), SECRET, now=NOW)


@pytest.mark.parametrize("secret", ["", "whsec_", "a password"])
def test_what_is_no_secret_is_a_mistake_of_the_receivers(secret):
    with pytest.raises(ValueError, match="whsec_"):
        verify_webhook(BODY, headers(), secret, now=NOW)


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20)), st.binary())
def test_any_request_is_believed_or_not(given_headers, body):
    assert "WEBHOOK_HEADERS" == code(body, given_headers, SECRET, now=NOW)


class TestTheReferenceLibrary:
    """`standardwebhooks`, by the makers of the specification."""

    @pytest.fixture
    def now(self):
        return SystemClock().now() // 1000

    def test_it_accepts_what_we_sign(self, now):
        assert EVENT == Webhook(SECRET).verify(BODY, headers(timestamp=now))

    def test_it_accepts_either_secret_of_a_rotation(self, now):
        given = headers(timestamp=now, secrets=(SECRET, OLD))

        assert EVENT == Webhook(SECRET).verify(BODY, given)
        assert EVENT == Webhook(OLD).verify(BODY, given)

    def test_it_refuses_what_we_did_not_sign(self, now):
        given = headers(timestamp=now, secrets=(OLD,))

        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(BODY, given)

    @given(st.text(max_size=50), st.binary(min_size=24, max_size=64))
    def test_we_accept_what_it_signs(self, name, key):
        secret = "whsec_" + base64.b64encode(key).decode()
        body = json.dumps(EVENT | {"name": name})
        at = datetime.fromtimestamp(NOW, UTC)
        given = headers() | {
            "webhook-signature": Webhook(secret).sign("job_1", at, body)
        }

        event = verify_webhook(body.encode(), given, secret, now=NOW)

        assert name == event["name"]
