"""Calls from one service to another one of the same operator, on behalf of a user."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx2
import orjson

from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import LOCAL
from backburner.http.auth import USER_HEADER
from backburner.http.problems import Refusal

SECONDS: Final = 10.0
LARGEST: Final = 1024 * 1024
"""The maximum size of a response that is read, in bytes."""
LATER: Final = 5
"""The default time after which to retry, in seconds."""
IDLE: Final = httpx2.Limits(max_keepalive_connections=100, keepalive_expiry=2.0)
"""Idle connections are closed before most servers and proxies close them."""
LONGEST_USER: Final = 200
HUNG_UP: Final = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
"""The errors of a kept connection that its server has closed meanwhile."""
NOT_REACHED: Final = (httpx2.ConnectError, httpx2.ConnectTimeout)
_BUSY: Final = frozenset({429, 503})


class Unsure(Refusal):
    """It is unknown whether the other service executed the request."""


class ServiceAnswer(NamedTuple):
    """The response of another service."""

    service: str
    """The name of the service."""
    status: int
    body: Mapping[str, Any]
    """Empty if the response is not a JSON object of at most 1 MiB."""
    retry_after: int = LATER

    @property
    def refusal(self) -> Refusal:
        """
        Return the error to raise if the response is not the expected one.

        A 400 is passed on. 503 with `Retry-After` means that the service is busy, 502
        that its response is not usable. It is `Unsure` if the service may have executed
        the request: a commit whose response was lost is a 503, too.
        """
        if self.status == 400:  # noqa: PLR2004
            code, why = self.body.get("code"), self.body.get("detail")
            return Refusal(400, str(code or "REFUSED"), str(why or "it was refused"))
        kind = Refusal if 400 <= self.status < 500 else Unsure  # noqa: PLR2004
        if self.status in _BUSY:
            return _away(kind, self.service, "is busy", self.retry_after)
        message = f"the {self.service} sent a response that cannot be used"
        return kind(502, f"{_code(self.service)}_ERROR", message)


class ServiceClient:
    """
    Calls another service, whose URL is configured by the operator.

    For URLs given by users, use `ctx.http`, which blocks private addresses.
    """

    def __init__(
        self,
        service: str,
        url: str,
        *,
        key: str = "",
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """
        `service` is its name in messages, such as `AI service`.

        `transport` replaces the network in a test.
        """
        self._service = service
        self._http = httpx2.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=SECONDS,
            limits=IDLE,
            trust_env=False,
            transport=transport,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        owner: Owner,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> ServiceAnswer:
        """
        Send a request on behalf of a user, who has a fair share of their own there.

        `more` is passed to httpx: `json`, `params`. Send only requests that are
        idempotent by an id of their own: if a connection breaks, the request is sent
        once more. Raises `Refusal`, a 503, if the service was not reached, and `Unsure`
        if it may have been.
        """
        named = {USER_HEADER: user_name(owner), **(headers or {})}
        was_cut = False
        while True:
            try:
                return await self._send(method, path, headers=named, **more)
            except httpx2.HTTPError as error:
                if isinstance(error, HUNG_UP) and not was_cut:
                    was_cut = True
                    continue
                # The first request may have been executed, whatever the second returns.
                is_sure = isinstance(error, NOT_REACHED) and not was_cut
                kind = Refusal if is_sure else Unsure
                raise _away(kind, self._service, "does not answer", LATER) from None

    async def _send(self, method: str, path: str, **more: Any) -> ServiceAnswer:
        content = bytearray()
        async with self._http.stream(method, path, **more) as answer:
            async for chunk in answer.aiter_bytes():
                content += chunk
                if len(content) > LARGEST:
                    content.clear()
                    break
        wait = answer.headers.get("retry-after", "")
        seconds = int(wait) if wait.isdecimal() else LATER
        return ServiceAnswer(self._service, answer.status_code, _read(content), seconds)


def user_name(owner: Owner) -> str:
    """
    Return the name of a user for another service.

    Users of other tenants than the default one are prefixed with their tenant.
    """
    is_default = owner.tenant == LOCAL.tenant
    name = owner.user if is_default else f"{owner.tenant}/{owner.user}"
    is_long = len(name) > LONGEST_USER
    return hashlib.sha256(name.encode()).hexdigest() if is_long else name


def _away(kind: type[Refusal], service: str, why: str, retry_after: int) -> Refusal:
    code = f"{_code(service)}_UNAVAILABLE"
    return kind(503, code, f"the {service} {why}", retry_after=retry_after)


def _code(service: str) -> str:
    return service.upper().replace(" ", "_")


def _read(content: bytearray) -> Mapping[str, Any]:
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}
