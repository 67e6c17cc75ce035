"""What becomes of a reply when the provider of models is in trouble."""

import asyncio

import pytest

from backburner.ai.mock import Mock
from backburner.clock import SystemClock
from backburner.domain.ai import Trouble
from backburner.ports.ai import Fault, Reply
from backburner.ports.store.maintenance import JobFilter
from backburner_apps.chat.tables import memories
from tests.apps.chat.conftest import ticket

CUT = "cut"


class Troubled(Mock):
    """Answers each message in trouble as often as it is told."""

    def __init__(self, troubles):
        super().__init__(SystemClock())
        self.troubles = troubles

    async def chat(self, chat, hear=None):
        left = self.troubles.get(chat.messages[-1].text, [])
        trouble = left.pop(0) if left else None
        if trouble is None:
            return await super().chat(chat, hear)
        if trouble == CUT:
            await hear("Half of a rep")
            raise Fault(Trouble.UNAVAILABLE, "the connection broke")
        return await Mock(SystemClock(), script=[trouble]).chat(chat, hear)


CASES = {
    "invalid answers twice": (["broken", "broken"], 3),
    "429 that says when": (["429 retry-after=1"], 1),
    "429 that does not": (["429"], 2),
    "an interrupted stream": ([CUT], 2),
    "a server error": (["503"], 2),
}


@pytest.mark.one_store
async def test_trouble_of_a_provider_costs_attempts_and_not_the_reply(start):
    provider = Troubled({name: [*how] for name, (how, _) in CASES.items()})
    chat = await start(provider=provider)
    await chat.make()
    replies = await asyncio.gather(*(chat.generate(name) for name in CASES))
    found = await chat.backburner.engine.jobs(JobFilter(capability="llm-generation"))

    assert [200] * len(CASES) == [reply.status_code for reply in replies]
    for name, reply in zip(CASES, replies, strict=True):
        assert f"Mock answer to: {name}" == reply.json()["content"]
    runs = {reply.json()["content"]: 0 for reply in replies}
    for job in await chat.backburner.engine.store.find([job.id for job in found]):
        answer = next(told for told in runs if told in job.output)
        runs[answer] = job.attempt
    assert [attempts for _, attempts in CASES.values()] == [*runs.values()]
    assert len(CASES) == len(await chat.rows(memories))

    retried = chat.lines("Retrying after error")
    first = [line["delayMs"] for line in retried if line["attempt"] == 1]
    second = [line["delayMs"] for line in retried if line["attempt"] == 2]
    # The one that was told when to come again waited, having paid for its vector.
    assert [2000] * 4 == first
    assert [4000] == second
    assert {3} == {line["maxAttempts"] for line in retried}


@pytest.mark.one_store
async def test_a_reader_of_an_interrupted_stream_ends_with_the_reply(start):
    chat = await start(provider=Troubled({"hello": [CUT]}))
    await chat.make()
    accepted = await chat.generate(params="?wait=0")
    pieces = []
    async for piece in ticket(chat, accepted.json()["jobId"]).pieces():
        if piece.is_reset:
            pieces = []
        pieces.append(piece.text)

    assert "Mock answer to: hello" == "".join(pieces)


@pytest.mark.one_store
async def test_what_a_provider_refuses_for_good_is_not_tried_again(start):
    codes = ("400", "401", "403", "404")
    provider = Troubled({f"it is {code}": [code] for code in codes})
    chat = await start(provider=provider)
    await chat.make()
    replies = [await chat.generate(f"it is {code}") for code in codes]
    found = await chat.backburner.engine.jobs(JobFilter(capability="llm-generation"))

    assert [502] * 4 == [reply.status_code for reply in replies]
    assert [1] * 4 == [job.attempt for job in found]
    assert [] == chat.lines("Retrying after error")


class Odd(Mock):
    """Writes what a database may not store."""

    async def chat(self, chat, hear=None):
        text = "\0odd"
        await hear(text)
        return Reply(text, chat.model)


async def test_a_reply_that_holds_a_nul_is_stored_and_remembered(start):
    chat = await start(provider=Odd(SystemClock()))
    await chat.make()
    reply = await chat.generate(requestId="r1", params="?wait=30")
    again = await start(duplicate_seconds=0)
    repeated = await again.generate(requestId="r1")

    assert (200, "\0odd") == (reply.status_code, reply.json().get("content")), (
        chat.log.getvalue()
    )
    assert reply.json() == repeated.json()
    [memory] = await chat.rows(memories)
    assert "User: hello\nReply: odd" == memory.content
