"""A job with a callback tells of its questions, once."""

import orjson

from backburner import Context, capability
from tests.egress.receiver import Receiver, answers
from tests.http.test_webhooks import WEBHOOKS, deliveries


@capability("test.asks", queue="demo")
async def asks(ctx: Context, _value: dict[str, int]) -> str:
    """Ask a person, after a wait that makes the handler run again."""
    return str(await ctx.ask_person("Send it?", choices=["yes", "no"], name="send"))


async def test_a_question_is_told_to_the_callback(serve):
    server = await serve(webhooks=WEBHOOKS, capabilities=[asks])
    async with Receiver(answers(204)) as receiver:
        callback = {"url": receiver.url()}
        job = await server.submit("test.asks", callback=callback)
        await receiver.called.wait()
        first = orjson.loads(receiver.requests[0].body)
        path = f"/v1/jobs/{job['id']}/questions/send/answer"
        assert 201 == (await server.client.post(path, json="yes")).status_code
        ended = await server.ended(job)
        listed = await deliveries(server, job)
        for delivery in listed:
            await server.ended(delivery)
        second = orjson.loads(receiver.requests[1].body)

    assert ("job.question", "waiting", "send", "Send it?", path) == (
        first["type"],
        first["data"]["state"],
        first["data"]["question"]["name"],
        first["data"]["question"]["question"],
        first["data"]["links"]["answer"],
    )
    assert 2 == len(listed) == len(receiver.requests)
    assert ("succeeded", "job.succeeded") == (ended["state"], second["type"])
