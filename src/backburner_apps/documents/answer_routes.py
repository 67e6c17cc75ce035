"""`POST /api/v2/answers`: asks a question about the caller's documents."""

from collections.abc import Sequence
from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from backburner import Backburner
from backburner.web import (
    Caller,
    Route,
    answer,
    budget_left,
    found,
    key_of,
    origin,
    read,
    require,
    routes_of,
)
from backburner_apps.documents import answers, views
from backburner_apps.documents.answers import AnswerRequest

Writer = Annotated[Caller, require("jobs:write")]


def routes(bb: Backburner) -> Sequence[BaseRoute]:
    """Return the routes over an open `Backburner`."""
    ask = Answers(bb).ask
    return routes_of(
        "documents",
        [
            Route(
                *("POST", "/api/v2/answers", ask, "Ask about one's documents"),
                AnswerRequest,
                operation_id="documents_ask",
            )
        ],
    )


class Answers:
    """Handles the requests of the route."""

    def __init__(self, bb: Backburner) -> None:
        self._bb = bb

    async def ask(self, request: Request, caller: Writer) -> Response:
        """
        Ask a question about the caller's own documents; the job's result is the answer.

        The job's events stream the answer while it is written. A repeat with the same
        `Idempotency-Key` and body within 24 hours returns the same job.
        """
        asked = await read(request, AnswerRequest)
        if asked.batch_id is not None:
            batch = await self._bb.read(views.find_batch, caller.owner, asked.batch_id)
            found(batch, "batch")
        ticket = await self._bb.submit(
            answers.answer,
            asked,
            idempotency_key=key_of(request),
            **origin(request, caller),
        )
        body = {"jobId": ticket.id, "status": "queued"}
        headers = {
            "Location": f"/v1/jobs/{ticket.id}",
            **await budget_left(request, caller),
        }
        return answer(body, 202, headers)
