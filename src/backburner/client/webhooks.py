"""Verifies webhooks, for their receivers."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Final, cast

from backburner.client.errors import WebhookError
from backburner.client.options import WebhookEvent
from backburner.domain.webhooks.webhook import is_signed

TOLERANCE_SECONDS: Final = 300
_LONGEST_TIMESTAMP: Final = 12


def verify_webhook(
    body: bytes,
    headers: Mapping[str, str],
    secrets: str | Sequence[str],
    *,
    now: float | None = None,
    tolerance: float = TOLERANCE_SECONDS,
) -> WebhookEvent:
    """
    Return the content of a webhook; raise `WebhookError` if it is not authentic.

    `body` is the exact body of the request; `secrets` is your secret or, during a
    rotation, both. A webhook may arrive twice, with the same `webhook-id`.
    """
    message_id, timestamp, signatures = check_webhook_headers(
        headers, now=now, tolerance=tolerance
    )
    if not is_signed(
        [secrets] if isinstance(secrets, str) else secrets,
        signatures,
        message_id=message_id,
        timestamp=timestamp,
        body=body,
    ):
        raise WebhookError(
            "the webhook is not signed with your secret", code="WEBHOOK_SIGNATURE"
        )
    return _event(body)


def check_webhook_headers(
    headers: Mapping[str, str],
    *,
    now: float | None = None,
    tolerance: float = TOLERANCE_SECONDS,
) -> tuple[str, int, str]:
    """
    Return a webhook's id, timestamp and signatures, or raise `WebhookError`.

    It needs no body, so a server can refuse unsigned or outdated requests before it
    reads one.
    """
    message_id, timestamp, signatures = _required(headers)
    if abs((time.time() if now is None else now) - timestamp) > tolerance:
        raise WebhookError(
            f"the webhook's timestamp is more than {tolerance:g} s from now",
            code="WEBHOOK_TIME",
        )
    return message_id, timestamp, signatures


def _required(headers: Mapping[str, str]) -> tuple[str, int, str]:
    named = {name.lower(): value for name, value in headers.items()}
    message_id = named.get("webhook-id", "")
    timestamp = named.get("webhook-timestamp", "")
    signatures = named.get("webhook-signature", "")
    is_time = timestamp.isascii() and timestamp.isdecimal()
    if not is_time or len(timestamp) > _LONGEST_TIMESTAMP:
        timestamp = ""
    if not (message_id and timestamp and signatures):
        raise WebhookError(
            "the webhook lacks one of its three headers", code="WEBHOOK_HEADERS"
        )
    return message_id, int(timestamp), signatures


def _event(body: bytes) -> WebhookEvent:
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise WebhookError("the webhook is not a JSON object", code="WEBHOOK_BODY")
    return cast("WebhookEvent", event)
