"""Requests that other programs put on the AI service's queue."""

import asyncio

import orjson
import pytest

from backburner import Backburner
from backburner.domain.jobs.job import Owner
from backburner.ports.store.flows import GroupFilter
from backburner.settings import Settings
from backburner.testing.broker.acts import pause
from backburner.testing.broker.memory import MemoryBroker, MemoryServer
from backburner_apps.ai import app as ai_app

QUEUE = "ai-capability-jobs"
HELD = {"tokensReserved": 5, "windowStartTimestamp": 7}
SECRET = "a secret that only the tests know"  # noqa: S105 - of the tests
SEVEN = GroupFilter(Owner("default", "7"), None, None)


@pytest.fixture
async def working(tmp_path):
    """An AI service's worker on a broker in memory; `server` is where messages go."""
    server = MemoryServer()
    settings = Settings(
        store=f"sqlite:///{tmp_path}/jobs.db",
        ai="mock",
        grace_seconds=0,
        poll_seconds=0.2,
        webhook_secret=SECRET,
        webhook_http=True,
        webhook_allow="127.0.0.1",
    )
    async with Backburner(settings, apps=[ai_app], broker=MemoryBroker(server)) as bb:
        await bb.start_worker()
        yield bb, server


def message(url, **changes):
    body = {"naturalLanguage": "buy milk"}
    usual = {
        "capability": "parse-task",
        "input": {"params": {}, "query": {}, "body": body},
        "callbackUrl": url,
        "requestId": "r-1",
        "userId": 7,
    }
    told = {**usual, **changes}
    return orjson.dumps({name: v for name, v in told.items() if v is not ...})


@pytest.mark.parametrize(
    ("sentence", "held", "status"),
    [("buy milk", HELD, "success"), ("[[mock: 400]] buy milk", ..., "failure")],
)
async def test_a_message_is_answered_by_the_callback_of_the_service(
    working, receiver, sentence, held, status
):
    backburner, server = working
    url, bodies = receiver
    asked = {"params": {}, "query": {}, "body": {"naturalLanguage": sentence}}
    told = message(url, input=asked, tokenReservation=held)
    server.put(QUEUE, told, told)
    async with asyncio.timeout(60):
        body = await bodies.get()
    flows = await backburner.engine.flows.list(SEVEN)

    assert (status, 7, sentence, "r-1") == tuple(
        body[name] for name in ("status", "userId", "naturalLanguage", "requestId")
    )
    assert [body["aiServiceRequestId"]] == [flow.id for flow in flows], "once"
    assert held == body.get("tokenReservation", ...)
    assert ("result" if status == "success" else "error") in body


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"requestId": ...}, "requestId: is missing"),
        ({"userId": ...}, "userId: is missing"),
        ({"userId": 0}, "userId: "),
        ({"callbackUrl": ...}, "callbackUrl: is missing"),
        ({"callbackUrl": "http://10.0.0.1/hook"}, "callbackUrl: "),
        ({"capability": "ai.callback"}, ""),
        ({"input": {"body": {}}}, "naturalLanguage"),
        ({"input": {"body": []}}, "input.body: must be an object"),
    ],
    ids=str,
)
async def test_what_cannot_be_taken_is_a_dead_letter(
    working, receiver, changes, reason
):
    _, server = working
    server.put(QUEUE, message(receiver[0], **changes))
    async with asyncio.timeout(60):
        while not server.dead[QUEUE]:
            await pause()
    [letter] = server.dead[QUEUE]
    told = orjson.loads(letter.body)

    assert "refused" == told["backburner"]
    assert reason in told["reason"]
