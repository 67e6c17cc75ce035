"""The function that SQS triggers: runs jobs, one message at a time."""

import asyncio
import math
from typing import Any, Final

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from pydantic import BaseModel, ValidationError

from backburner_apps.features.aws.aws_errors import code_of
from backburner_apps.features.aws.changes import Run
from backburner_apps.features.aws.delivery import Delivery, Handler, NotDone
from backburner_apps.features.aws.deployment import client, deployment_of, jobs_of
from backburner_apps.features.aws.dynamo_jobs import DynamoJobs
from backburner_apps.features.aws.jobs_table import FAILURES
from backburner_apps.features.aws.model import FunctionModel
from backburner_apps.features.aws.observing import (
    WORKER_ERRORS,
    count,
    logger,
    observed,
)
from backburner_apps.features.aws.settings import aws_settings
from backburner_apps.features.catalogue import features
from backburner_apps.features.core.retrying import delay_after

# A failed message is reported, not raised: an exception's text could contain a CV.
_PROCESSOR: Final = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)


class JobMessage(BaseModel):
    """The body of a message."""

    job_id: str


@observed
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Process the messages of an event; return those to be delivered again."""
    return dict(
        process_partial_response(
            event=event,
            record_handler=process,
            processor=_PROCESSOR,
            context=context,
        )
    )


def process(record: SQSRecord) -> None:
    """Process one message; raise `NotDone` if it must be delivered again."""
    run = Run(int(record.attributes.approximate_receive_count or 1))
    try:
        job_id = _job_id(record, run)
        outcome = asyncio.run(Delivery(job_id, run, jobs_of(run), handler_of).process())
    except NotDone as error:
        _hide(record, error.delay)
        logger.warning("Job not done", code=error.cause, receive=run.receive)
        if error.is_error:
            count(WORKER_ERRORS, "all")
        raise
    logger.info("Job done", job_id=job_id, outcome=outcome, receive=run.receive)


def _job_id(record: SQSRecord, run: Run) -> str:
    try:
        return JobMessage.model_validate_json(record.body).job_id
    except ValidationError:
        raise NotDone("MALFORMED_MESSAGE", delay_after(run.receive)) from None


def handler_of(feature: str, jobs: DynamoJobs) -> Handler:
    """Return the handler of a feature, with a model."""
    model = FunctionModel(aws_settings().model_secret_name)
    return features()[feature](deployment_of(jobs, model))


def _hide(record: SQSRecord, delay: float) -> None:
    """Let the message be delivered again after a delay instead of 900 seconds."""
    try:
        client("sqs").change_message_visibility(
            QueueUrl=aws_settings().queue_url,
            ReceiptHandle=record.receipt_handle,
            VisibilityTimeout=math.ceil(delay),
        )
    except FAILURES as error:
        logger.warning("Visibility not changed", code=code_of(error))
