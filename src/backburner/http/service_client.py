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
"""The most bytes of an answer that are read."""
LATER: Final = 5
"""When to ask again, in seconds, if the service does not say."""
IDLE: Final = httpx2.Limits(max_keepalive_connections=100, keepalive_expiry=2.0)
"""Connections are closed sooner than most servers and proxies close them."""
LONGEST_USER: Final = 200
HUNG_UP: Final = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
"""What a connection ends with that was kept open until its server closed it."""
NOT_REACHED: Final = (httpx2.ConnectError, httpx2.ConnectTimeout)
_BUSY: Final = frozenset({429, 503})


class Unsure(Refusal):
    """Nobody knows whether the other service took the request."""


class ServiceAnswer(NamedTuple):
    """What another service answered."""

    service: str
    """Its name."""
    status: int
    body: Mapping[str, Any]
    """Empty if the answer is no JSON object of at most 1 MiB."""
    retry_after: int = LATER

    @property
    def refusal(self) -> Refusal:
        """
        Return what to answer one's own caller who wanted something else.

        A 400 is passed on. 503 with `Retry-After` means that the service is busy, 502
        that its answer is of no use. It is `Unsure` if the service may have done what
        it was asked: a commit whose answer was lost is a 503, too.
        """
        if self.status == 400:  # noqa: PLR2004
            code, why = self.body.get("code"), self.body.get("detail")
            return Refusal(400, str(code or "REFUSED"), str(why or "it was refused"))
        kind = Refusal if 400 <= self.status < 500 else Unsure  # noqa: PLR2004
        if self.status in _BUSY:
            return _away(kind, self.service, "is busy", self.retry_after)
        message = f"the {self.service}'s answer cannot be used"
        return kind(502, f"{_code(self.service)}_ERROR", message)


class ServiceClient:
    """
    Calls another service, whose URL is the operator's own setting.

    For addresses that a user gave, use `ctx.http`, which guards against private ones.
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
        Take the service's name for messages, such as `AI service`, and an API key.

        `transport` takes the place of the network, in a test.
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
        Send a request for a user, who has a fair share of their own there.

        `more` is what httpx takes: `json`, `params`. Send only what may be repeated,
        by an id of its own: if a connection breaks, the request is sent once more.
        Raises `Refusal`, a 503, if the service was not reached, and `Unsure` if it may
        have been.
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
                # What was cut off may have been taken, whatever comes of the repeat.
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
    Return what another service calls a user.

    Users of other tenants than the default one are named with their tenant.
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
