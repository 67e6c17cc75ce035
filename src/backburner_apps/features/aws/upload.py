"""The function that signs URLs to which browsers send CVs."""

from datetime import timedelta
from typing import Any

from aws_lambda_powertools.event_handler import Response
from pydantic import ValidationError

from backburner_apps.features.aws.api import answer, api, body_of, handler_of, user_of
from backburner_apps.features.aws.bucket import URL_SECONDS
from backburner_apps.features.aws.clock import now
from backburner_apps.features.aws.deployment import bucket
from backburner_apps.features.aws.observing import observed
from backburner_apps.features.aws.uploads import new_key
from backburner_apps.features.core.errors import ValidationFailed
from backburner_apps.features.core.limits import validate_file_size
from backburner_apps.features.core.request import mistakes
from backburner_apps.features.core.uploads import UploadRequest, UploadView

app = api()


@observed
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer a request of API Gateway."""
    return app.resolve(event, context)


@app.post("/api/<feature>/uploads")
def upload(feature: str) -> Response[str]:
    """Sign a URL for a file of up to 10 MiB: PDF, DOCX or text."""
    handler_of(feature)
    user, asked = user_of(app.current_event), _asked(body_of(app.current_event))
    validate_file_size(asked.size)
    key = new_key(user)
    offered = UploadView(
        user_cv_key=key,
        upload_url=bucket().url_to_write(key, asked.size),
        headers={},
        expires_at=now() + timedelta(seconds=URL_SECONDS),
    )
    return answer(offered.model_dump(mode="json"), 201)


def _asked(body: Any) -> UploadRequest:
    try:
        return UploadRequest.model_validate(body)
    except ValidationError as error:
        raise ValidationFailed(mistakes(error)) from None
