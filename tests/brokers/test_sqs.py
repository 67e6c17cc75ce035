"""Another program and an operator at SQS: one path there, and one back."""

import asyncio
import json
import secrets

import boto3
import pytest

from backburner import Backburner, Context, PermanentError, capability
from backburner.brokers.sqs_address import Address
from backburner.domain.jobs.job import JobState
from backburner.ports.store.maintenance import JobFilter
from backburner.settings import Settings
from backburner.testing.broker.acts import pause

PATIENCE = 180.0


class Queue:
    """One queue by Amazon's own library."""

    def __init__(self, url):
        address = Address.read(url)
        self._sqs = boto3.client(
            "sqs",
            region_name=address.region,
            endpoint_url=address.endpoint,
            aws_access_key_id=address.key,
            aws_secret_access_key=address.secret,
        )
        self.name = f"fickle-{secrets.token_hex(4)}"

    def put(self, body):
        url = self._sqs.create_queue(QueueName=self.name)["QueueUrl"]
        self._sqs.send_message(QueueUrl=url, MessageBody=json.dumps(body))

    def letters(self, count):
        """Wait for dead letters, take them and return them as they are."""
        url = self._sqs.create_queue(QueueName=f"{self.name}-dlq")["QueueUrl"]
        found = []
        while len(found) < count:
            told = self._sqs.receive_message(
                QueueUrl=url, WaitTimeSeconds=1, MaxNumberOfMessages=10
            )
            found += told.get("Messages", ())
        for message in found:
            handle = message["ReceiptHandle"]
            self._sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
        return [json.loads(message["Body"]) for message in found]

    def close(self):
        self._sqs.close()


@pytest.fixture
def queue(sqs_url):
    queue = Queue(sqs_url)
    yield queue
    queue.close()


async def jobs_of(backburner, state):
    """Wait until there is a job in a state; return all of them."""
    async with asyncio.timeout(PATIENCE):
        while True:
            jobs = await backburner.engine.store.jobs(JobFilter(), before=None, limit=9)
            if any(job.state is state for job in jobs):
                return jobs
            await pause()


async def test_a_message_becomes_a_job_fails_and_is_moved_back(
    queue, sqs_url, tmp_path
):
    is_mended = asyncio.Event()

    @capability("fickle", queue=queue.name, max_attempts=1)
    async def fickle(_ctx: Context, value: str) -> str:
        if not is_mended.is_set():
            raise PermanentError(f"{value} is broken", code="BROKEN")
        return value

    store = f"sqlite:///{tmp_path}/jobs.db"
    settings = Settings(store=store, transport=sqs_url, grace_seconds=0)
    async with Backburner(settings, capabilities=[fickle]) as backburner:
        await backburner.start_worker()
        for body in ({"capability": "fickle", "input": "it"}, {"capability": "fickel"}):
            await asyncio.to_thread(queue.put, body)
        letters = await asyncio.to_thread(queue.letters, 2)
        told = {letter["backburner"]: letter for letter in letters}
        is_mended.set()
        await asyncio.to_thread(queue.put, told["dead-letter"])
        [job] = await jobs_of(backburner, JobState.SUCCEEDED)

    assert "BROKEN" == told["dead-letter"]["error"]["code"]
    assert "INVALID_INPUT" == told["refused"]["code"]
    assert 1 == job.generation, "it is the same job, retried"
