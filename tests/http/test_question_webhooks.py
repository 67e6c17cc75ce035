"""A job with a callback tells of its questions, once."""

import asyncio

import orjson

from backburner import Context, capability
from tests.egress.receiver import Receiver, answers
from tests.http.test_signals import waiting
from tests.http.test_webhooks import WEBHOOKS, deliveries


@capability("test.asks", queue="demo")
async def asks(ctx: Context, _value: dict[str, int]) -> str:
    """Ask a person, after a wait that makes the handler run again."""
    return str(await ctx.ask_person("Send it?", choices=["yes", "no"], name="send"))


@capability("test.asks-beside", queue="demo")
async def asks_beside(ctx: Context, _value: dict[str, int]) -> None:
    """Ask two people while it waits for a signal."""
    questions = [ctx.ask_person(text, name=text) for text in ("one", "two")]
    await asyncio.gather(ctx.wait("go"), *questions)


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


async def test_questions_beside_another_wait_are_told_once_each(serve):
    server = await serve(webhooks=WEBHOOKS, capabilities=[asks_beside])
    async with Receiver(answers(204)) as receiver:
        callback = {"url": receiver.url()}
        job = await server.submit("test.asks-beside", callback=callback)
        path = f"/v1/jobs/{job['id']}"
        await waiting(server, job)
        for delivery in await deliveries(server, job):
            await server.ended(delivery)
        for wait in ("signals/go", "questions/one/answer", "questions/two/answer"):
            answer = await server.client.post(f"{path}/{wait}", json="yes")
            assert 201 == answer.status_code
        await server.ended(job)
        for delivery in await deliveries(server, job):
            await server.ended(delivery)
        bodies = [orjson.loads(request.body) for request in receiver.requests]

    told = [body["data"] for body in bodies if body["type"] == "job.question"]
    assert ["one", "two"] == sorted(data["question"]["name"] for data in told)
