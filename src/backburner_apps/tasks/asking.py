"""Calls the AI service over HTTP, also if it runs in the same process."""

from typing import Final

from backburner import Backburner, Owner
from backburner.web import Refusal, ServiceClient, log
from backburner_apps.tasks.book import Asked
from backburner_apps.tasks.settings import TasksSettings

PARSE: Final = "/api/v1/capabilities/parse-task"
LOST: Final = "lost"
"""State of an open request whose flow has ended or is unknown to the AI service."""


class AiService:
    """Client for the AI service: submits requests and reads their states."""

    def __init__(self, backburner: Backburner, base_url: str) -> None:
        """`base_url` is the URL of the Tasks service, for callbacks."""
        settings = backburner.settings_of(TasksSettings)
        self._callback = f"{base_url}/api/v1/webhooks"
        self._timezone = settings.timezone
        url = settings.ai_service_base_url or backburner.address
        key = backburner.settings.api_key.get_secret_value()
        self._http = ServiceClient("AI service", url, key=key)
        self.close = self._http.close

    async def parse(
        self, asked: Asked, request_id: str, reservation: dict[str, int]
    ) -> str:
        """Submit a sentence; return the AI service's id of the request."""
        trace = {} if asked.trace is None else {"traceparent": asked.trace}
        answer = await self._http.call(
            "POST",
            PARSE,
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
        ai_request_id = answer.body.get("aiServiceRequestId")
        if answer.status == 202 and isinstance(ai_request_id, str):  # noqa: PLR2004
            return ai_request_id
        if answer.status in {401, 403}:
            log.error(
                "AI service refused BACKBURNER_API_KEY: it needs the scopes jobs:read, "
                "jobs:write and users:act",
                status=answer.status,
            )
        raise answer.refusal

    async def state(self, ai_request_id: str, owner: Owner) -> str | None:
        """Return a request's state: queued, running, `LOST`, or `None` if unknown."""
        try:
            answer = await self._http.call("GET", f"/v1/flows/{ai_request_id}", owner)
        except Refusal:
            return None
        if answer.status == 404:  # noqa: PLR2004
            return LOST
        if answer.status != 200:  # noqa: PLR2004
            return None
        flow = answer.body
        if flow.get("state") not in {"running", None}:
            return LOST
        states = {each.get("name"): each.get("state") for each in flow.get("steps", [])}
        is_waiting = states.get("capability") in {"queued", "scheduled"}
        return "queued" if is_waiting else "running"
