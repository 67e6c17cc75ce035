"""
Calls the Bot API: sends messages and downloads voice messages.

Requests go through the guarded egress, only to the host in the settings. Errors are
raised as errors of the job. The token is part of every URL, so errors contain no URL.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlsplit

from backburner import (
    Http,
    HttpResponse,
    PermanentError,
    Throttled,
    TransientError,
    WorkError,
)
from backburner_apps.inbox.settings import InboxSettings

SEND_FAILED: Final = "QUEUE_NOTIFICATION_SEND_FAILED"
VOICE_FAILED: Final = "QUEUE_VOICE_DOWNLOAD_FAILED"
LARGEST_VOICE: Final = 20 * 1024 * 1024
"""The largest file, in bytes, that the Bot API lets bots download."""
SECONDS: Final = 15.0
LONGEST_WAIT: Final = 3600.0


class Bot:
    """Client of the Bot API for one bot."""

    def __init__(self, http: Http, settings: InboxSettings) -> None:
        base = settings.telegram_api_base_url
        self._http = http
        self._methods = f"{base}/bot{settings.token}"
        self._files = f"{base}/file/bot{settings.token}"
        self._hosts = [urlsplit(base).netloc.rpartition("@")[2]]

    async def send(self, chat_id: int, text: str, parse_mode: str) -> int | None:
        """Send a message; return its id, or `None` if the answer has none."""
        body = {"chat_id": chat_id, "text": text, "parse_mode": parse_mode}
        sent = await self._call("sendMessage", body, SEND_FAILED)
        number = sent.get("message_id") if isinstance(sent, Mapping) else None
        return number if isinstance(number, int) else None

    async def download(self, file_id: str) -> bytes:
        """Return the bytes of a voice message."""
        file = await self._call("getFile", {"file_id": file_id}, VOICE_FAILED)
        path = file.get("file_path") if isinstance(file, Mapping) else None
        if not isinstance(path, str) or not path or ".." in path:
            raise TransientError("the Bot API returned no path", code=VOICE_FAILED)
        try:
            answer = await self._http.get(
                f"{self._files}/{quote(path)}",
                hosts=self._hosts,
                limit=LARGEST_VOICE,
                seconds=SECONDS,
                redirects=0,
            )
            return answer.raise_for_status().body
        except WorkError as error:
            raise _recoded(error, VOICE_FAILED) from error

    async def _call(self, method: str, body: Mapping[str, Any], code: str) -> Any:
        try:
            answer = await self._http.post(
                f"{self._methods}/{method}",
                json=body,
                hosts=self._hosts,
                seconds=SECONDS,
            )
        except WorkError as error:
            raise _recoded(error, code) from error
        return result_of(answer, code)


def result_of(answer: HttpResponse, code: str) -> Any:
    """Return the result of a method, or raise the error of a job for the answer."""
    body = _object(answer)
    if answer.is_success and body.get("ok") is True:
        return body.get("result")
    message = f"the Bot API answered {answer.status}"
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        wait = _wait(body, answer.retry_after)
        raise Throttled(message, retry_after=wait, code=code)
    if answer.is_success:
        message = "the Bot API's answer cannot be read"
    elif answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        raise PermanentError(message, code=code)
    raise TransientError(message, code=code)


def _wait(body: Mapping[str, Any], header: float | None) -> float | None:
    """Return the seconds to wait from the body or the header, or `None`."""
    parameters = body.get("parameters")
    asked = parameters.get("retry_after") if isinstance(parameters, Mapping) else None
    wait = asked if isinstance(asked, int | float) and asked >= 0 else header
    return None if wait is None else min(float(wait), LONGEST_WAIT)


def _object(answer: HttpResponse) -> Mapping[str, Any]:
    try:
        body = answer.json()
    except TransientError:
        return {}
    return body if isinstance(body, Mapping) else {}


def _recoded(error: WorkError, code: str) -> WorkError:
    """Return an error of the egress with a code of the inbox."""
    message = f"{error} ({error.problem_code})"
    if isinstance(error, Throttled):
        return Throttled(message, retry_after=error.retry_after, code=code)
    kind = TransientError if isinstance(error, TransientError) else PermanentError
    return kind(message, code=code)
