"""The Tasks service's way to the AI service: a real call over HTTP."""

from typing import Any, Final

import httpx2

from backburner import Owner, Settings
from backburner.web import Refusal

SECONDS: Final = 10.0
LATER: Final = 5
"""When to ask again, in seconds, if the AI service does not say."""
IDLE: Final = httpx2.Limits(max_keepalive_connections=100, keepalive_expiry=2.0)
"""Connections are let go sooner than most servers and proxies close them."""
CAPABILITY: Final = "parse-task"
CODE: Final = "AI_SERVICE_UNAVAILABLE"
LOST: Final = "lost"
"""The state of a request that the AI service is done with."""
HUNG_UP: Final = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
"""What a connection ends with that was kept open until its server closed it."""


class AiService:
    """Asks the AI service for tasks, and what became of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        key = settings.api_key.get_secret_value()
        self._http = httpx2.AsyncClient(
            base_url=settings.ai_service_base_url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=SECONDS,
            limits=IDLE,
            trust_env=False,
        )

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def parse(
        self, request_id: str, owner: Owner, sentence: str, reservation: dict[str, int]
    ) -> str:
        """Have a sentence made a task of; return by which id it is known there."""
        base = self._settings.tasks_service_base_url
        sent = {
            "naturalLanguage": sentence,
            "config": {"timezone": self._settings.tasks_timezone},
            "callbackUrl": f"{base}/api/v1/webhooks",
            "userId": f"{owner.tenant}/{owner.user}",
            "tokenReservation": reservation,
        }
        answer = await self._call(
            "POST",
            f"/api/v1/capabilities/{CAPABILITY}",
            params={"pattern": "async"},
            json=sent,
            headers={"X-Request-ID": request_id},
        )
        told = _read(answer)
        known_as = told.get("aiServiceRequestId")
        if answer.status_code == 202 and isinstance(known_as, str):  # noqa: PLR2004
            return known_as
        raise _refusal(answer, told)

    async def state(self, ai_request_id: str) -> str | None:
        """Return how far a request is: queued, running or lost; `None`: unknown."""
        try:
            answer = await self._call("GET", f"/v1/flows/{ai_request_id}")
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
        except httpx2.HTTPError:
            raise Refusal(
                503, CODE, "the AI service does not answer", retry_after=LATER
            ) from None


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
    if status in {429, 503}:
        wait = answer.headers.get("retry-after", "")
        seconds = int(wait) if wait.isdecimal() else LATER
        return Refusal(503, CODE, "the AI service is busy", retry_after=seconds)
    return Refusal(502, "AI_SERVICE_ERROR", "the AI service's answer is of no use")
