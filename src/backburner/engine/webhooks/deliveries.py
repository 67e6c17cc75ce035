"""Delivery jobs, which send webhooks, and their replay."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import orjson

from backburner.domain.errors import IllegalTransition, JobNotFound
from backburner.domain.jobs.job import Instant, Job, JobState, NewJob, Owner, Visibility
from backburner.domain.jobs.outcome import Failed, Snooze
from backburner.domain.jobs.retry import RetryPolicy
from backburner.domain.webhooks.delivery import CAPABILITY, QUEUE
from backburner.domain.webhooks.webhook import Endpoint
from backburner.engine.engine import Engine
from backburner.engine.registry import Capability, capability
from backburner.engine.run.context import Context
from backburner.engine.webhooks.delivery import (
    DISABLED,
    LATEST,
    SCHEDULE,
    Delivered,
    Delivery,
    WebhookMessage,
    is_gone,
)
from backburner.engine.webhooks.endpoints import Endpoints
from backburner.engine.webhooks.messages import DeliveryInput, Messages
from backburner.ports.store.keys import AuditEntry
from backburner.ports.store.maintenance import JobFilter

SUBJECT_GONE: Final = "WEBHOOK_SUBJECT_GONE"
GONE: Final = "the receiver answered 410"

Deliver = Callable[[Endpoint, WebhookMessage], Awaitable[Delivery]]


def delivering(
    deliver: Deliver,
    endpoints: Endpoints,
    messages: Messages,
    retry: RetryPolicy = SCHEDULE,
) -> Capability[DeliveryInput, Delivered]:
    """Return the capability that sends webhooks."""

    # A receiver that asks for later retries is not given up sooner than one that fails.
    # A wait beyond the limit ends the job, so the limit is one wait longer.
    @capability(CAPABILITY, queue=QUEUE, retry=retry, patience=retry.longest() + LATEST)
    async def handle(ctx: Context, given: DeliveryInput) -> Delivered | Snooze | Failed:
        """Send one webhook to its endpoint."""
        job = ctx.job
        endpoint = await endpoints.called(given.callback, job.owner)
        if endpoint is None:
            return Failed(DISABLED, "the endpoint was deleted", retryable=False)
        body = await messages.body(given, job.owner)
        if body is None:
            message = "the job, flow or batch that it reports no longer exists"
            return Failed(SUBJECT_GONE, message, retryable=False)
        message_id = given.message or job.id
        delivery = await deliver(
            endpoint, WebhookMessage(message_id, body, job.request_id, job.traceparent)
        )
        if is_gone(delivery):
            await endpoints.give_up(endpoint, GONE)
        return delivery

    return handle


async def listing(
    engine: Engine, subject: str, owner: Visibility, *, before: int | None, limit: int
) -> Sequence[Job]:
    """Return a page of the deliveries of a job, flow or batch, newest first."""
    where = JobFilter(owner=owner, capability=CAPABILITY, tag=f"delivery:{subject}")
    return await engine.jobs(where, before=before, limit=limit)


async def find(engine: Engine, delivery_id: str, owner: Owner) -> Job:
    """Return a delivery; other jobs are not found."""
    job = await engine.find(delivery_id, owner)
    if job.capability != CAPABILITY:
        raise JobNotFound(f"{delivery_id[:60]!r} is not a delivery")
    return job


async def replay(
    engine: Engine,
    delivery_id: str,
    owner: Owner,
    entries: Sequence[AuditEntry] = (),
) -> Job:
    """
    Send a webhook again; its job, flow or batch does not run again.

    A failed delivery is retried. A successful one is repeated by a new delivery with
    the same message id, so the receiver can recognise it. `entries` are added to the
    audit log with it.
    """
    job = await find(engine, delivery_id, owner)
    if job.state is JobState.FAILED:
        return await engine.retry(job.id, owner, entries=entries)
    if not job.state.is_final:
        raise IllegalTransition("the delivery is still in progress")
    again = _repeated(job, engine.draw("job"), engine.now())
    await engine.store_jobs([again], entries)
    return await engine.find(again.id, owner)


def _repeated(job: Job, new_id: str, now: Instant) -> NewJob:
    data = {"message": job.id, **orjson.loads(job.input)}
    return NewJob(
        id=new_id,
        owner=job.owner,
        capability=job.capability,
        queue=job.queue,
        input=orjson.dumps(data).decode(),
        created_at=now,
        max_attempts=job.max_attempts,
        priority=job.priority,
        tags=job.tags,
        request_id=job.request_id,
        traceparent=job.traceparent,
        tokens=0,
    )
