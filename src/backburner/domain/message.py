"""
The format of messages from other programs and of exported dead letters.

Backburner's own messages tell workers of new jobs. A dead letter that is moved back
requests a retry. Any other message comes from another program: it is a request for a
job, or invalid. A refused message that is moved back is read like the original.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from backburner.domain.blobs.blob import reference
from backburner.domain.groups.flow import FROM_NEEDS
from backburner.domain.jobs.job import Instant, Job, rfc3339
from backburner.domain.plain import odd
from backburner.domain.webhooks.address import LONGEST_URL

WORK_AVAILABLE = b'{"backburner":"work"}'
"""Tells a worker that the queue has one more job to claim."""

MARK: Final = "backburner"
"""The field that identifies Backburner's own messages."""
WORK: Final = "work"
DEAD_LETTER: Final = "dead-letter"
REFUSED: Final = "refused"

LIMIT: Final = 11 * 1024 * 1024
LONGEST_BODY: Final = 96 * 1024
"""How much of a refused body is kept; as text or Base64 it fits any broker."""
MAX_NAME: Final = 200
MAX_REQUEST_ID: Final = 255
MAX_ID: Final = 100
MAX_SHOWN: Final = 60
MAX_TOKENS: Final = 1_000_000_000
MAX_WINDOW: Final = 64
MAX_WHOLE: Final = 2**53

MALFORMED: Final = "MALFORMED_BODY"
TOO_LARGE: Final = "BODY_TOO_LARGE"
INVALID: Final = "INVALID_INPUT"


class WorkAvailable(NamedTuple):
    """The queue has one more job to claim."""


class Returned(NamedTuple):
    """A dead letter that was moved back to be retried."""

    job: str
    generation: int


class Original(NamedTuple):
    """A message as its producer sent it."""

    id: str
    body: bytes
    is_cut: bool = False


class Request(NamedTuple):
    """A request for a job by another program."""

    original: Original
    capability: str
    input: bytes
    """JSON."""
    request_id: str | None = None
    user: str | int | None = None
    """As it was sent: a text or a positive integer."""
    callback: str | None = None
    tokens: int | None = None
    window: str | None = None
    """The start of the budget window that holds those tokens, as it was sent."""


class Refused(NamedTuple):
    """An invalid message and the reason."""

    original: Original
    code: str
    reason: str


class _InvalidMessage(Exception):
    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def read(
    body: bytes, message_id: str = "", *, limit: int = LIMIT
) -> WorkAvailable | Returned | Request | Refused:
    """Parse any message; this never raises."""
    original = Original(message_id, body)
    try:
        value = _object(original, limit)
        while value.get(MARK) == REFUSED:
            original = _unwrapped(value)
            value = _object(original, limit)
        return _meaning(value, original)
    except _InvalidMessage as error:
        return Refused(original, error.code, str(error))


def dead_letter(job: Job) -> bytes:
    """Return the message that exports a dead letter."""
    message = {
        MARK: DEAD_LETTER,
        "job": job.id,
        "generation": job.generation,
        "queue": job.queue,
        "capability": job.capability,
        "error": {
            "code": "" if job.error is None else job.error.code,
            "message": "" if job.error is None else job.error.message,
        },
        "attempts": job.attempt,
        "failedAt": rfc3339(job.finished_at or 0),
    }
    blob, text = reference(job.input), job.input
    if blob is not None:
        message["inputBytes"] = blob.size
    if blob is not None or text == FROM_NEEDS:
        text = "null"
    # Characters that cannot be encoded are replaced: every dead letter is exported.
    return _written(message, "replace")[:-1] + b',"input":' + text.encode() + b"}"


def refusal(refused: Refused, queue: str, at: Instant) -> bytes:
    """Return the message that stores a refused one with the reason."""
    original = refused.original
    kept = original.body[:LONGEST_BODY]
    message = {
        MARK: REFUSED,
        "code": refused.code,
        "reason": refused.reason,
        "queue": queue,
        "at": rfc3339(at),
        "id": original.id,
        **_body(kept),
    }
    if original.is_cut or len(kept) < len(original.body):
        message["cut"] = True
    return _written(message, "replace")


def _object(original: Original, limit: int) -> Mapping[str, Any]:
    if original.is_cut:
        raise _InvalidMessage(
            TOO_LARGE, "only the beginning of its body was kept: send it again"
        )
    if len(original.body) > limit:
        raise _InvalidMessage(TOO_LARGE, f"the body may have at most {limit} bytes")
    try:
        value = json.loads(original.body.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise _InvalidMessage(MALFORMED, "the body is not valid JSON") from None
    if not isinstance(value, dict):
        raise _InvalidMessage(INVALID, "the body must be a JSON object")
    return value


def _refuse(word: str) -> None:
    raise ValueError(word)


def _unwrapped(value: Mapping[str, Any]) -> Original:
    """Return the original of a refused message, or its body as edited since."""
    name, code = value.get("id"), value.get("base64")
    text: Any = value.get("body")
    try:
        if isinstance(code, str):
            body = base64.b64decode(code, validate=True)
        else:
            body = text.encode()
    except (AttributeError, ValueError):
        raise _InvalidMessage(
            INVALID, "body: the refused message has no readable body"
        ) from None
    known = name if isinstance(name, str) else ""
    return Original(known, body, is_cut=value.get("cut") is True)


def _meaning(
    value: Mapping[str, Any], original: Original
) -> WorkAvailable | Returned | Request | Refused:
    if (why := odd(value)) is not None:
        raise _InvalidMessage(MALFORMED, f"the body {why}")
    match value.get(MARK):
        case None if MARK not in value:
            return _request(value, original)
        case str(kind) if kind == WORK:
            return WorkAvailable()
        case str(kind) if kind == DEAD_LETTER:
            job = _text(value, "job", MAX_ID, is_needed=True)
            return Returned(job or "", _whole(value, "generation", MAX_WHOLE))
        case _:
            raise _InvalidMessage(INVALID, f"{MARK}: only Backburner writes this field")


_FIELDS: Final = frozenset(
    {
        "capability",
        "input",
        "requestId",
        "userId",
        "callbackUrl",
        "tokenReservation",
    }
)
_RESERVATION: Final = frozenset({"tokensReserved", "windowStartTimestamp"})


def _request(value: Mapping[str, Any], original: Original) -> Request:
    _check_fields(value, _FIELDS, "")
    if "input" not in value:
        raise _InvalidMessage(INVALID, "input: is missing")
    try:
        input_ = _written(value["input"])
    except ValueError:  # a lone surrogate, or a number such as NaN
        raise _InvalidMessage(
            MALFORMED, "the body has a text or number that is not valid"
        ) from None
    tokens, window = _reservation(value.get("tokenReservation"))
    return Request(
        original=original,
        capability=_text(value, "capability", MAX_NAME, is_needed=True) or "",
        input=input_,
        request_id=_request_id(value),
        user=_user(value),
        callback=_text(value, "callbackUrl", LONGEST_URL),
        tokens=tokens,
        window=window,
    )


def _user(value: Mapping[str, Any]) -> str | int | None:
    number = value.get("userId")
    if type(number) is int and 0 < number <= MAX_WHOLE:
        return number
    return _text(value, "userId", MAX_NAME)


def _request_id(value: Mapping[str, Any]) -> str | None:
    request_id = _text(value, "requestId", MAX_REQUEST_ID)
    if request_id is not None and not request_id.isascii():
        raise _InvalidMessage(INVALID, "requestId: must be ASCII")
    return request_id


def _reservation(value: Any) -> tuple[int | None, str | None]:
    if value is None:
        return None, None
    path = "tokenReservation"
    if not isinstance(value, dict):
        raise _InvalidMessage(INVALID, f"{path}: must be an object")
    _check_fields(value, _RESERVATION, f"{path}.")
    tokens = _whole(value, "tokensReserved", MAX_TOKENS, f"{path}.")
    name = "windowStartTimestamp"
    if isinstance(value.get(name), str):
        window = _text(value, name, MAX_WINDOW, f"{path}.")
    else:
        window = str(_whole(value, name, MAX_WHOLE, f"{path}."))
    return tokens, window


def _check_fields(value: Mapping[str, Any], fields: frozenset[str], path: str) -> None:
    for name in value:
        if name not in fields:
            raise _InvalidMessage(
                INVALID, f"{path}{name[:MAX_SHOWN]!a}: is not a field here"
            )


def _text(
    value: Mapping[str, Any],
    name: str,
    longest: int,
    path: str = "",
    *,
    is_needed: bool = False,
) -> str | None:
    text = value.get(name)
    if text is None and not is_needed:
        return None
    if not isinstance(text, str) or not 0 < len(text) <= longest:
        raise _InvalidMessage(
            INVALID, f"{path}{name}: must be a text of 1 to {longest} characters"
        )
    if not text.isprintable():
        raise _InvalidMessage(INVALID, f"{path}{name}: must be printable")
    return text


def _whole(value: Mapping[str, Any], name: str, most: int, path: str = "") -> int:
    number: Any = value.get(name)
    if type(number) is not int or not 0 <= number <= most:  # True is an int, too
        raise _InvalidMessage(
            INVALID, f"{path}{name}: must be a whole number from 0 to {most}"
        )
    return number


def _body(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode()
    except ValueError:
        return _coded(body)
    # Control characters take six bytes each, and brokers limit the size of messages.
    is_text = len(_written(text)) <= 2 * len(body) + 2
    return {"body": text} if is_text else _coded(body)


def _coded(body: bytes) -> dict[str, Any]:
    return {"base64": base64.b64encode(body).decode()}


def _written(value: Any, errors: str = "strict") -> bytes:
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    ).encode(errors=errors)
