"""The jobs of `features`: one capability for each feature, and the clean-up."""

from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel

from backburner import (
    Capability,
    Context,
    Failed,
    Owner,
    PermanentError,
    RetryPolicy,
    Schedule,
    TransientError,
    capability,
    estimate_of,
)
from backburner_apps.features.catalogue import Feature, features
from backburner_apps.features.core.errors import FeatureError, LlmFailed
from backburner_apps.features.core.ports import Deployment
from backburner_apps.features.core.records import JobStatus, record_name
from backburner_apps.features.core.retrying import FIRST_DELAY, MAX_DELAY, MAX_RECEIVES
from backburner_apps.features.jobs import AttemptJobs
from backburner_apps.features.metrics import PrometheusMeter
from backburner_apps.features.model import ContextModel
from backburner_apps.features.records import CAPABILITY, QUEUE, bare_id, moment
from backburner_apps.features.results import BlobResults, delete_expired
from backburner_apps.features.settings import FeaturesSettings
from backburner_apps.features.uploads import BlobFiles

UPKEEP_QUEUE: Final = "features-upkeep"
LONGEST: Final = timedelta(minutes=11)
"""Timeout for a run that does not end after `timeout_seconds`, at most 10 minutes."""
RETRY: Final = RetryPolicy(
    max_attempts=MAX_RECEIVES,
    base=timedelta(seconds=FIRST_DELAY),
    cap=timedelta(seconds=MAX_DELAY),
)
EXPECTED: Final = 1_500
"""Expected number of tokens of an answer, for budgets."""
SOME: Final = 1_000
ITSELF: Final = Owner("default", "features")


class Finished(BaseModel):
    """The output of a job: the id of its result."""

    result_key: str


def deployment_of(ctx: Context, request: Any) -> Deployment:
    """Return the deployment with which a feature runs in a worker."""
    settings = ctx.settings_of(FeaturesSettings)
    created_at = moment(ctx.job.created_at)
    return Deployment(
        jobs=AttemptJobs(ctx, request),
        results=BlobResults(ctx.app_blobs, ctx.read, settings.retention.completed),
        meter=PrometheusMeter(),
        now=lambda: created_at,  # the engine itself says when a job began and ended
        model=ContextModel(ctx, settings.ai_seconds),
        files=BlobFiles(ctx.app_blobs, settings.retention.failed),
        retention=settings.retention,
        timeout_seconds=settings.timeout_seconds,
    )


def capability_of(feature: Feature) -> Capability[Any, Any]:
    """Return the capability that runs a feature."""

    @capability(
        CAPABILITY + feature.feature,
        queue=QUEUE,
        timeout=LONGEST,
        retry=RETRY,
        tokens=estimate_of(output=EXPECTED),
    )
    async def run(ctx: Context, value: dict[str, Any]) -> Finished | Failed:
        """Process a request and store the result."""
        return await process(feature, ctx, value)

    return run


async def process(
    feature: Feature, ctx: Context, value: dict[str, Any]
) -> Finished | Failed:
    """Run a job once; return its output or raise an error for the engine."""
    try:
        ended = await feature(deployment_of(ctx, value)).execute(bare_id(ctx.job.id))
    except LlmFailed as error:
        return _delivered_again(error)
    except FeatureError as error:
        raise TransientError(str(error), code=error.code) from error
    record = ended.unwrap()
    if record.status is JobStatus.FAILED:
        raise PermanentError(record.error or "", code=record.code)
    return Finished(result_key=record.result_key or "")


def _delivered_again(error: LlmFailed) -> Failed:
    """Raise the error that retries a job after the requested delay, as an attempt."""
    wait = error.retry_after
    span = None if wait is None else timedelta(seconds=min(wait, MAX_DELAY))
    return Failed(error.code, str(error), retry_after=span, is_paid=True)


@capability("features-upkeep.clean-up", queue=UPKEEP_QUEUE)
async def clean_up(ctx: Context, _value: None) -> int:
    """Delete the rows of results that have expired; return how many."""
    total = 0
    while deleted := await ctx.transact(lambda tx: delete_expired(tx, SOME)):
        total += deleted
    return total


RUNS: Final = {
    record_name(name): capability_of(feature) for name, feature in features().items()
}
"""The capability of each feature, by the feature's name in records."""
SCHEDULES: Final = (
    Schedule("features-clean-up", "17 * * * *", clean_up, owner=ITSELF),
)
