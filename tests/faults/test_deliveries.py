"""A worker is killed after a webhook was sent and before that was written down."""

import orjson

from backburner.domain.jobs.job import JobState
from backburner.domain.webhooks.delivery import QUEUE
from backburner.ports.store.maintenance import JobFilter
from tests.egress.receiver import Receiver, answers


async def test_a_webhook_that_is_sent_twice_says_that_it_is_one(fleet, client):
    async with Receiver(answers(204)) as receiver:
        reach = {
            "BACKBURNER_WEBHOOK_SECRET": "whsec_" + "c2VjcmV0IG9mIG91cnM=" * 2,
            "BACKBURNER_WEBHOOK_ALLOW": "127.0.0.0/8",
            "BACKBURNER_WEBHOOK_HTTP": "true",
            "BACKBURNER_WEBHOOK_PORTS": str(receiver.port),
        }
        [job] = await client.submit("work", {}, callback=receiver.url())
        killed = fleet.worker(BACKBURNER_FAULT="worker.settling:2", **reach)
        code = await killed.ended()
        sent_once = len(receiver.requests)
        await fleet.worker(**reach).ready()
        [delivery] = await client.engine.jobs(JobFilter(queue=QUEUE))
        [ended] = await client.ended([delivery.id])

    first, second = receiver.requests
    assert (137, 1) == (code, sent_once)
    assert JobState.SUCCEEDED is ended.state
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert job == orjson.loads(first.body)["data"]["id"]
    assert [] == await client.audit()
