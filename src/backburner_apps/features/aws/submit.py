"""The function that changes jobs: stores new ones, and cancels them."""

import asyncio
from typing import Any, Final

from aws_lambda_powertools.event_handler import Response

from backburner_apps.features.aws.api import (
    answer,
    api,
    body_of,
    data_of,
    handler_of,
    key_of,
    user_of,
)
from backburner_apps.features.aws.observing import observed
from backburner_apps.features.core.records import JobView

RECEIPT: Final = {"job_id", "status", "created_at"}

app = api()


@observed
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer a request of API Gateway."""
    return app.resolve(event, context)


@app.post("/api/<feature>/submit")
def submit(feature: str) -> Response[str]:
    """Store a job and answer at once; a repeat with the same key is the same job."""
    key = key_of(app.current_event)
    task, user = handler_of(feature, key), user_of(app.current_event)
    body = body_of(app.current_event)
    record = data_of(asyncio.run(task.submit(user, body, feature)))
    shown = JobView.of(record).model_dump(mode="json", include=RECEIPT)
    location = f"/api/{feature}/status/{record.job_id}"
    return answer(shown, 202, Location=location)


@app.post("/api/<feature>/cancel/<job_id>")
def cancel(feature: str, job_id: str) -> Response[str]:
    """End a job at once: it is `FAILED` with the code `CANCELLED`."""
    task, user = handler_of(feature), user_of(app.current_event)
    record = data_of(asyncio.run(task.cancel(job_id, user)))
    return answer(JobView.of(record).model_dump(mode="json", exclude_none=True))
