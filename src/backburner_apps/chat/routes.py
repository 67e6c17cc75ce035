"""The routes of `chat`: `POST /ai/generate` and the counts of its queue."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import orjson
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from backburner import Backburner, Job, JobState, Transaction
from backburner.web import (
    Caller,
    Refusal,
    Route,
    acting_as,
    answer,
    log,
    queue_counts,
    read,
    request_id_of,
    require,
    routes_of,
    traceparent_of,
    wait,
)
from backburner_apps.chat import personality_routes
from backburner_apps.chat.generation import (
    DuplicateRequest,
    Generation,
    TooManyRequests,
    submit_generation,
)
from backburner_apps.chat.personalities import PersonalityNotFound
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.chat.shapes import GenerateRequest
from backburner_apps.chat.work import QUEUE

Writer = Annotated[Caller, require("jobs:write")]
Metrics = Annotated[Caller, require("metrics:read")]
LONGEST_WAIT: Final = 600
Seconds = Annotated[
    int | None,
    Query(
        ge=0,
        le=LONGEST_WAIT,
        description="How long to wait for the reply, in seconds; 0 answers 202.",
    ),
]


def routes(backburner: Backburner) -> Sequence[BaseRoute]:
    """Return the routes over an open `Backburner`."""
    service = Service(backburner)
    own = [
        Route(
            *("POST", "/ai/generate", service.generate, "Reply to a message"),
            GenerateRequest,
        ),
        Route("GET", "/metrics/queues", counts, "Count the jobs of a queue"),
    ]
    return [*routes_of("chat", own), *personality_routes.routes(backburner)]


async def counts(request: Request, _caller: Metrics, queue: str = QUEUE) -> Response:
    """Count the jobs of `ai-jobs`, or of another queue."""
    return answer(await queue_counts(request, queue))


class Service:
    """Handles the requests of the routes."""

    def __init__(self, backburner: Backburner) -> None:
        self._backburner = backburner
        self._settings = backburner.settings_of(ChatSettings)

    async def generate(
        self,
        request: Request,
        caller: Writer,
        seconds: Annotated[Seconds, Query(alias="wait")] = None,
    ) -> Response:
        """
        Reply to a message, using its attachments and the user's memories.

        If the reply takes longer than `wait`, the answer is a 202 with the job's
        address. The job continues even if the client disconnects.
        """
        asked = await read(request, GenerateRequest)
        if asked.user_id != caller.owner.user:
            caller = acting_as(asked.user_id, caller)
        try:
            made = await self._submit(request, caller, asked)
        except DuplicateRequest as error:
            log.warning("Duplicate request detected", requestId=error.request_id)
            return answer({"error": str(error)}, 429)
        if made.reply is not None:
            return answer(made.reply)
        longest = self._settings.wait_seconds
        limit = longest if seconds is None else min(seconds, longest)
        if not limit:
            return _accepted(made)
        job = await wait(request, caller, made.job_id, seconds=limit)
        return _answered(made, job)

    async def _submit(
        self, request: Request, caller: Caller, asked: GenerateRequest
    ) -> Generation:
        def store(tx: Transaction) -> Generation:
            return submit_generation(
                tx,
                caller.owner,
                asked,
                self._settings,
                options={
                    "request_id": request_id_of(request),
                    "traceparent": traceparent_of(request),
                    "key": caller.key,
                },
            )

        try:
            return await self._backburner.transact(store)
        except PersonalityNotFound as error:
            raise Refusal(404, error.code, str(error)) from None
        except TooManyRequests as error:
            raise Refusal(
                429, error.code, str(error), retry_after=error.retry_after
            ) from None


def _accepted(made: Generation) -> Response:
    body = {"requestId": made.request_id, "jobId": made.job_id}
    return answer(body, 202, {"Location": f"/v1/jobs/{made.job_id}"})


def _answered(made: Generation, job: Job) -> Response:
    if not job.state.is_final:
        return _accepted(made)
    if job.state is JobState.SUCCEEDED:
        reply: Mapping[str, Any] = orjson.loads(job.output or "null")
        return answer(reply)
    if job.error is None:
        raise Refusal(502, "CANCELLED", "the job was cancelled")
    raise Refusal(502, job.error.code, job.error.message)
