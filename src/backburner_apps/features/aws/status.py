"""The function that shows jobs: one with the URL of its result, or a list."""

import asyncio
from typing import Any, Final

from aws_lambda_powertools.event_handler import Response

from backburner_apps.features.aws.api import answer, api, data_of, handler_of, user_of
from backburner_apps.features.aws.deployment import jobs_of
from backburner_apps.features.aws.observing import observed
from backburner_apps.features.core.records import JobView, record_name

SHOWN: Final = 50
"""Maximum number of jobs in a list."""

app = api()


@observed
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer a request of API Gateway."""
    return app.resolve(event, context)


@app.get("/api/<feature>/status/<job_id>")
def status(feature: str, job_id: str) -> Response[str]:
    """Return the status of a job, and a URL of its result that is valid for an hour."""
    task, user = handler_of(feature), user_of(app.current_event)
    view: JobView = data_of(asyncio.run(task.poll(job_id, user)))
    return answer(view.model_dump(mode="json", exclude_none=True))


@app.get("/api/<feature>/jobs")
def jobs(feature: str) -> Response[str]:
    """List the caller's jobs of one feature, the newest first."""
    handler_of(feature)
    return _listed(record_name(feature))


@app.get("/api/jobs")
def all_jobs() -> Response[str]:
    """List the caller's jobs of all features, the newest first."""
    return _listed(None)


def _listed(feature: str | None) -> Response[str]:
    user = user_of(app.current_event)
    records = data_of(asyncio.run(jobs_of().get_user_jobs(user, feature)))
    views = [JobView.of(record) for record in records[:SHOWN]]
    shown = [view.model_dump(mode="json", exclude_none=True) for view in views]
    return answer({"items": shown})
