"""Shared code of the functions behind the API: callers, bodies and errors."""

import json
from http import HTTPStatus
from typing import Any, Final

from aws_lambda_powertools.event_handler import (
    APIGatewayRestResolver,
    CORSConfig,
    Response,
)
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEvent

from backburner_apps.features.aws.deployment import deployment_of, jobs_of
from backburner_apps.features.aws.observing import logger
from backburner_apps.features.aws.settings import aws_settings
from backburner_apps.features.catalogue import features
from backburner_apps.features.core.errors import TooLarge, ValidationFailed
from backburner_apps.features.core.result import DataAccessError, Result, ResultCode
from backburner_apps.features.core.task import AsyncTaskHandler

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
_STATUS: Final = {
    ResultCode.NOT_FOUND: 404,
    ResultCode.CONFLICT: 409,
    ResultCode.IDEMPOTENCY_CONFLICT: 422,
}
MAX_KEY: Final = 255
"""Maximum length of an idempotency key, in characters."""
_PASSING: Final = frozenset({429, 502, 503, 504})
_UNSENT: Final = frozenset({ResultCode.MISSING_INDEX})
"""Codes whose message is for operators: it is logged and not sent to clients."""


class Refusal(Exception):
    """Ends a request with an error body in the format of RFC 9457."""

    def __init__(self, status: int, code: str, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.body = {
            "type": "about:blank",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": detail,
            "code": code,
            "retryable": status in _PASSING,
            **members,
        }


def api() -> APIGatewayRestResolver:
    """Return a resolver that answers every error in the format of RFC 9457."""
    origins = aws_settings().cors_origins
    cors = CORSConfig(origins[0], list(origins[1:])) if origins else None
    app = APIGatewayRestResolver(cors=cors)
    app.exception_handler(Refusal)(_refused)
    app.exception_handler(ValidationFailed)(_invalid)
    app.exception_handler(DataAccessError)(_unavailable)
    app.exception_handler(Exception)(_unexpected)
    app.not_found(_no_route)
    return app


def answer(body: Any, status: int = 200, **headers: str) -> Response[str]:
    """Return a JSON response that must not be cached."""
    shown = {"Cache-Control": "no-store", **headers}
    return Response(status, JSON, json.dumps(body), headers=dict(shown))


def user_of(event: APIGatewayProxyEvent) -> str:
    """Return the user's id from the authorizer's claims."""
    user = (event.request_context.authorizer.claims or {}).get("sub")
    if not user:
        raise Refusal(401, "UNAUTHORIZED", "the request has no authenticated user")
    return str(user)


def body_of(event: APIGatewayProxyEvent) -> Any:
    """Return the body, parsed as JSON regardless of its `Content-Type`."""
    kind = str(event.headers.get("content-type") or "").strip().lower()
    if kind.startswith("multipart/"):
        raise Refusal(415, "UNSUPPORTED_MEDIA_TYPE", "multipart is not read: send JSON")
    try:
        return json.loads(event.decoded_body or "")
    except (ValueError, RecursionError):
        raise Refusal(400, "MALFORMED_BODY", "the body is not JSON") from None


def key_of(event: APIGatewayProxyEvent) -> str | None:
    """Return the idempotency key: bare, or as a structured string."""
    key = event.headers.get("idempotency-key")
    if key is None:
        return None
    is_quoted = len(key) > 1 and key[0] == key[-1] == '"'
    key = key[1:-1] if is_quoted else key
    if not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        detail = f"Idempotency-Key: 1 to {MAX_KEY} printable ASCII characters"
        raise Refusal(422, "INVALID_INPUT", detail)
    return key


def handler_of(feature: str, key: str | None = None) -> AsyncTaskHandler[Any]:
    """Return the handler of a feature; raise a 404 that lists the existing ones."""
    handler = features().get(feature)
    if handler is None:
        known = list(features())
        detail = f"there is no such feature; the features are {', '.join(known)}"
        raise Refusal(404, "UNKNOWN_FEATURE", detail, features=known)
    return handler(deployment_of(jobs_of(key=key)))


def data_of(result: Result[Any]) -> Any:
    """Return the value of a result, or raise the HTTP error for its code."""
    if result.success:
        return result.data
    code = result.code or ResultCode.STORE_ERROR
    if code is ResultCode.NOT_FOUND:
        raise Refusal(404, "JOB_NOT_FOUND", "there is no such job, or not yours")
    if code in _UNSENT:
        logger.error(result.error, code=code)
    is_caller = code in _STATUS
    detail = result.error if is_caller else "the store is not available"
    raise Refusal(_STATUS.get(code, 503), code, str(detail))


def _refused(error: Refusal) -> Response[str]:
    return Response(error.status, PROBLEM, json.dumps(error.body))


def _invalid(error: ValidationFailed) -> Response[str]:
    status = 413 if isinstance(error, TooLarge) else 400
    return _refused(Refusal(status, error.code, str(error)))


def _unavailable(error: DataAccessError) -> Response[str]:
    logger.error("Store unavailable", code=error.code)
    return _refused(Refusal(503, error.code, "the store is not available"))


def _unexpected(error: Exception) -> Response[str]:
    # Its text may contain data of the caller.
    logger.error("Request failed", error_type=type(error).__name__)
    return _refused(Refusal(500, "INTERNAL_ERROR", "the request could not be served"))


def _no_route(_error: Exception) -> Response[str]:
    return _refused(Refusal(404, "NOT_FOUND", "there is no such route"))
