"""The routes of `features`: submit, poll, fetch, upload, list and cancel."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, NoReturn
from urllib.parse import urljoin

from fastapi import Query
from pydantic import RootModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from backburner import Backburner
from backburner.web import (
    Caller,
    Refusal,
    Route,
    answer,
    key_of,
    origin,
    read,
    require,
    routes_of,
)
from backburner_apps.features.catalogue import features
from backburner_apps.features.core.errors import TooLarge, ValidationFailed
from backburner_apps.features.core.ports import Deployment
from backburner_apps.features.core.records import JobView, record_name
from backburner_apps.features.core.request import FeatureRequest
from backburner_apps.features.core.result import Result, ResultCode
from backburner_apps.features.core.task import AsyncTaskHandler
from backburner_apps.features.core.uploads import UploadRequest
from backburner_apps.features.jobs import MOST_LISTED, ServerJobs
from backburner_apps.features.metrics import PrometheusMeter
from backburner_apps.features.records import moment
from backburner_apps.features.results import BlobResults
from backburner_apps.features.settings import FeaturesSettings
from backburner_apps.features.uploads import BlobFiles
from backburner_apps.features.work import RUNS

Reader = Annotated[Caller, require("jobs:read")]
Writer = Annotated[Caller, require("jobs:write")]
Count = Annotated[int, Query(ge=1, le=MOST_LISTED, description="How many at most.")]
SHOWN: Final = 50
APP: Final = "features"
_STATUS: Final = {
    ResultCode.NOT_FOUND: 404,
    ResultCode.CONFLICT: 409,
    ResultCode.THROTTLED: 503,
}


class Body(RootModel[dict[str, Any]]):
    """A JSON object, which the feature validates."""


@asynccontextmanager
async def serves(backburner: Backburner) -> AsyncIterator[Sequence[BaseRoute]]:
    """Yield the routes over an open `Backburner`."""
    service, at = Service(backburner), "/api/{feature}"
    yield routes_of(
        APP,
        [
            Route(
                *("POST", f"{at}/submit", service.submit, "Submit a request"),
                FeatureRequest,
            ),
            Route("GET", f"{at}/status/{{job_id}}", service.status, "Show a job"),
            Route(
                *("POST", f"{at}/uploads", service.upload, "Get a URL to send a CV to"),
                UploadRequest,
            ),
            Route("GET", f"{at}/jobs", service.jobs, "List your jobs of a feature"),
            Route("GET", "/api/jobs", service.all_jobs, "List your jobs"),
            Route("POST", f"{at}/cancel/{{job_id}}", service.cancel, "Cancel a job"),
        ],
    )


class Service:
    """Handles the requests of the routes."""

    def __init__(self, backburner: Backburner) -> None:
        self._backburner = backburner
        self._settings = backburner.settings_of(FeaturesSettings)

    async def submit(self, request: Request, caller: Writer, feature: str) -> Response:
        """Store a job and answer at once; the CV is a text or an uploaded file."""
        handler = self._handler(feature, caller, request)
        data = (await read(request, Body)).root
        try:
            made = await handler.submit(caller.owner.user, data, feature)
        except ValidationFailed as error:
            _refuse(error)
        record = _data(made)
        view = JobView.of(record)
        shown = view.model_dump(mode="json", include=RECEIPT)
        location = f"/api/{feature}/status/{record.job_id}"
        return answer(shown, 202, {"Location": location})

    async def status(
        self, request: Request, caller: Reader, feature: str, job_id: str
    ) -> Response:
        """Show where a job is; a completed one has a URL that works for an hour."""
        view = _data(
            await self._handler(feature, caller).poll(job_id, caller.owner.user)
        )
        return answer(_shown(view, request), headers={"Cache-Control": "no-store"})

    async def upload(self, request: Request, caller: Writer, feature: str) -> Response:
        """Sign a URL for a file of up to 10 MiB: PDF, DOCX or text."""
        self._handler(feature, caller)
        asked = await read(request, UploadRequest)
        try:
            offered = await self._files(caller).offer(asked, str(request.base_url))
        except ValidationFailed as error:
            _refuse(error)
        return answer(offered.model_dump(mode="json"), 201)

    async def jobs(
        self, request: Request, caller: Reader, feature: str, limit: Count = SHOWN
    ) -> Response:
        """List the caller's jobs of one feature, the newest first."""
        self._handler(feature, caller)
        return await self._listed(request, caller, feature, limit)

    async def all_jobs(
        self, request: Request, caller: Reader, limit: Count = SHOWN
    ) -> Response:
        """List the caller's jobs of all features, the newest first."""
        return await self._listed(request, caller, None, limit)

    async def cancel(
        self, request: Request, caller: Writer, feature: str, job_id: str
    ) -> Response:
        """End a job at once: it is `FAILED` with the code `CANCELLED`."""
        handler = self._handler(feature, caller)
        record = _data(await handler.cancel(job_id, caller.owner.user))
        return answer(_shown(JobView.of(record), request))

    async def _listed(
        self, request: Request, caller: Caller, feature: str | None, limit: int
    ) -> Response:
        jobs = ServerJobs(self._backburner, caller.owner, RUNS)
        named = None if feature is None else record_name(feature)
        records = _data(await jobs.get_user_jobs(caller.owner.user, named))
        views = [_shown(JobView.of(record), request) for record in records[:limit]]
        return answer({"items": views})

    def _handler(
        self, feature: str, caller: Caller, request: Request | None = None
    ) -> AsyncTaskHandler[Any]:
        found = features().get(feature)
        if found is None:
            known = list(features())
            raise Refusal(
                404,
                "UNKNOWN_FEATURE",
                f"there is no such feature; the features are {', '.join(known)}",
                members={"features": known},
            )
        return found(self._deployment(caller, request))

    def _deployment(self, caller: Caller, request: Request | None) -> Deployment:
        options: Any = {}
        if request is not None:
            key = key_of(request)
            options = {**origin(request, caller), "idempotency_key": key}
        retention = self._settings.retention
        blobs = self._backburner.blobs(APP, caller.owner)
        return Deployment(
            jobs=ServerJobs(self._backburner, caller.owner, RUNS, options),
            results=BlobResults(blobs, self._backburner.read, retention.completed),
            meter=PrometheusMeter(),
            now=lambda: moment(self._backburner.engine.now()),
            files=self._files(caller),
            retention=retention,
        )

    def _files(self, caller: Caller) -> BlobFiles:
        blobs = self._backburner.blobs(APP, caller.owner)
        return BlobFiles(blobs, self._settings.retention.failed)


RECEIPT: Final = {"job_id", "status", "created_at"}


def _shown(view: JobView, request: Request) -> dict[str, Any]:
    """Return a job as its user sees it, with absolute URLs."""
    shown = view.model_dump(mode="json", exclude_none=True)
    if view.result_url is not None:
        shown["result_url"] = urljoin(str(request.base_url), view.result_url)
    return shown


def _data(result: Result[Any]) -> Any:
    """Return the value of a result, or raise the HTTP error for its code."""
    if result.success:
        return result.data
    code = result.code or ResultCode.STORE_ERROR
    if code is ResultCode.NOT_FOUND:
        raise Refusal(404, "JOB_NOT_FOUND", "there is no such job, or not yours")
    status = _STATUS.get(code, 503)
    raise Refusal(status, code, result.error or "the store is not available")


def _refuse(error: ValidationFailed) -> NoReturn:
    status = 413 if isinstance(error, TooLarge) else 400
    raise Refusal(status, error.code, str(error)) from None
