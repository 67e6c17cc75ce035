"""The Tasks service's way to the AI service: a real call over HTTP."""

import hashlib
from typing import Any, Final

import httpx2

from backburner import Backburner, Owner
from backburner.web import Refusal, log
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
        self,
        request_id: str,
        owner: Owner,
        sentence: str,
        reservation: dict[str, int],
        traceparent: str | None = None,
    ) -> str:
        """Have a sentence made a task of; return by which id it is known there."""
        sent = {
            "naturalLanguage": sentence,
            "config": {"timezone": self._timezone},
            "callbackUrl": self._callback,
            "userId": owner.user,
            "tokenReservation": reservation,
        }
        answer = await self._call(
            "POST",
            f"/api/v1/capabilities/{CAPABILITY}",
            params={"pattern": "async"},
            json=sent,
            headers={
                "X-Request-ID": request_id,
                **_acting_as(owner),
                **({} if traceparent is None else {"traceparent": traceparent}),
            },
        )
        told = _read(answer)
        known_as = told.get("aiServiceRequestId")
        if answer.status_code == 202 and isinstance(known_as, str):  # noqa: PLR2004
            return known_as
        raise _refusal(answer, told)

    async def state(self, ai_request_id: str, owner: Owner) -> str | None:
        """Return how far a request is: queued, running or lost; `None`: unknown."""
        headers = _acting_as(owner)
        try:
            answer = await self._call(
                "GET", f"/v1/flows/{ai_request_id}", headers=headers
            )
        except Refusal:
            return None
        told = _read(answer)
        if answer.status_code == 404:  # noqa: PLR2004
            return LOST
        if answer.status_code != 200:  # noqa: PLR2004
            return None
        if told.get("state") not in {"running", None}:
            return LOST
        steps = told.get("steps", [])
        states = {step.get("name"): step.get("state") for step in steps}
        has_begun = states.get("capability") not in {"queued", "scheduled"}
        return "running" if has_begun else "queued"

    async def _call(self, method: str, path: str, **more: Any) -> httpx2.Response:
        try:
            try:
                return await self._http.request(method, path, **more)
            except HUNG_UP:
                # Asking again is safe: by its id it is the same request.
                return await self._http.request(method, path, **more)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            raise Refusal(503, CODE, SILENT, retry_after=LATER) from None
        except httpx2.HTTPError:
            raise Unsure(503, CODE, SILENT, retry_after=LATER) from None


def _acting_as(owner: Owner) -> dict[str, str]:
    """
    Name the user to the AI service: each has a fair share of its own there.

    Users of other tenants than the default one are named with their tenant.
    """
    is_default = owner.tenant == DEFAULT_TENANT
    name = owner.user if is_default else f"{owner.tenant}/{owner.user}"
    if len(name) > LONGEST_USER:
        name = hashlib.sha256(name.encode()).hexdigest()
    return {"X-User-Id": name}


def _read(answer: httpx2.Response) -> dict[str, Any]:
    try:
        told = answer.json()
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _refusal(answer: httpx2.Response, told: dict[str, Any]) -> Refusal:
    """Pass on why the AI service does not do it, as far as it is the caller's."""
    status = answer.status_code
    if status == 400:  # noqa: PLR2004
        code, why = told.get("code"), told.get("detail")
        return Refusal(400, str(code or "REFUSED"), str(why or "it was refused"))
    wait = answer.headers.get("retry-after", "")
    seconds = int(wait) if wait.isdecimal() else LATER
    if status == 429:  # noqa: PLR2004
        return Refusal(503, CODE, "the AI service is busy", retry_after=seconds)
    if status == 503:  # noqa: PLR2004
        # A commit whose answer was lost is a 503, too.
        return Unsure(503, CODE, "the AI service is busy", retry_after=seconds)
    if status in {401, 403}:
        log.error(
            "AI service refused BACKBURNER_API_KEY: it needs the scopes jobs:read, "
            "jobs:write and users:act",
            status=status,
        )
    kind = Unsure if status < 400 or status >= 500 else Refusal  # noqa: PLR2004
    return kind(502, "AI_SERVICE_ERROR", "the AI service's answer cannot be used")
