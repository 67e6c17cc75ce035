"""The Tasks service's way to the AI service: a real call over HTTP."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import httpx2

from backburner import Backburner, Owner
from backburner.web import Refusal, log
from backburner_apps.tasks.book import Asked
from backburner_apps.tasks.settings import TasksSettings

SECONDS: Final = 10.0
LATER: Final = 5
"""When to ask again, in seconds, if the AI service does not say."""
IDLE: Final = httpx2.Limits(max_keepalive_connections=100, keepalive_expiry=2.0)
"""Connections are let go sooner than most servers and proxies close them."""
CAPABILITY: Final = "parse-task"
CODE: Final = "AI_SERVICE_UNAVAILABLE"
SILENT: Final = "the AI service does not answer"
DEFAULT_TENANT: Final = "default"
LONGEST_USER: Final = 200
LOST: Final = "lost"
"""The state of a request that the AI service is done with."""
HUNG_UP: Final = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
"""What a connection ends with that was kept open until its server closed it."""


class Unsure(Refusal):
    """Nobody knows whether the AI service took the request: it may yet call back."""


class AiService:
    """Asks the AI service for tasks, and what became of them."""

    def __init__(self, house: Backburner, here: str) -> None:
        """Take the URL at which the Tasks service is called back."""
        settings = house.settings_of(TasksSettings)
        self._callback = f"{here}/api/v1/webhooks"
        self._timezone = settings.timezone
        key = house.settings.api_key.get_secret_value()
        self._http = httpx2.AsyncClient(
            base_url=settings.ai_service_base_url or house.address,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=SECONDS,
            limits=IDLE,
            trust_env=False,
        )

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def parse(
        self, asked: Asked, request_id: str, reservation: dict[str, int]
    ) -> str:
        """Have a sentence made a task of; return by which id it is known there."""
        trace = {} if asked.trace is None else {"traceparent": asked.trace}
        answer = await self._call(
            "POST",
            f"/api/v1/capabilities/{CAPABILITY}",
            asked.owner,
            params={"pattern": "async"},
            headers={"X-Request-ID": request_id, **trace},
            json={
                "naturalLanguage": asked.sentence,
                "config": {"timezone": self._timezone},
                "callbackUrl": self._callback,
                "userId": asked.owner.user,
                "tokenReservation": reservation,
            },
        )
        body = _read(answer)
        known_as = body.get("aiServiceRequestId")
        if answer.status_code == 202 and isinstance(known_as, str):  # noqa: PLR2004
            return known_as
        raise _refusal(answer, body)

    async def state(self, ai_request_id: str, owner: Owner) -> str | None:
        """Return how far a request is: queued, running or lost; `None`: unknown."""
        try:
            answer = await self._call("GET", f"/v1/flows/{ai_request_id}", owner)
        except Refusal:
            return None
        if answer.status_code == 404:  # noqa: PLR2004
            return LOST
        if answer.status_code != 200:  # noqa: PLR2004
            return None
        flow = _read(answer)
        if flow.get("state") not in {"running", None}:
            return LOST
        states = {each.get("name"): each.get("state") for each in flow.get("steps", [])}
        is_waiting = states.get("capability") in {"queued", "scheduled"}
        return "queued" if is_waiting else "running"

    async def _call(
        self,
        method: str,
        path: str,
        owner: Owner,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> httpx2.Response:
        named = {"X-User-Id": _name(owner), **(headers or {})}
        sent = {"headers": named, **more}
        try:
            try:
                return await self._http.request(method, path, **sent)
            except HUNG_UP:
                # Asking again is safe: by its id it is the same request.
                return await self._http.request(method, path, **sent)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            raise Refusal(503, CODE, SILENT, retry_after=LATER) from None
        except httpx2.HTTPError:
            raise Unsure(503, CODE, SILENT, retry_after=LATER) from None


def _name(owner: Owner) -> str:
    """
    Name the user to the AI service: each has a fair share of its own there.

    Users of other tenants than the default one are named with their tenant.
    """
    is_default = owner.tenant == DEFAULT_TENANT
    name = owner.user if is_default else f"{owner.tenant}/{owner.user}"
    is_long = len(name) > LONGEST_USER
    return hashlib.sha256(name.encode()).hexdigest() if is_long else name


def _read(answer: httpx2.Response) -> dict[str, Any]:
    try:
        told = answer.json()
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _refusal(answer: httpx2.Response, body: dict[str, Any]) -> Refusal:
    """Pass on why the AI service does not do it, as far as it is the caller's."""
    status = answer.status_code
    if status == 400:  # noqa: PLR2004
        code, why = body.get("code"), body.get("detail")
        return Refusal(400, str(code or "REFUSED"), str(why or "it was refused"))
    # A commit whose answer was lost is a 503, too.
    kind = Refusal if 400 <= status < 500 else Unsure  # noqa: PLR2004
    if status in {429, 503}:
        wait = answer.headers.get("retry-after", "")
        seconds = int(wait) if wait.isdecimal() else LATER
        return kind(503, CODE, "the AI service is busy", retry_after=seconds)
    if status in {401, 403}:
        log.error(
            "AI service refused BACKBURNER_API_KEY: it needs the scopes jobs:read, "
            "jobs:write and users:act",
            status=status,
        )
    return kind(502, "AI_SERVICE_ERROR", "the AI service's answer cannot be used")
