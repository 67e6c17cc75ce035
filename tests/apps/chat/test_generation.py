"""A request becomes one flow, and its reply one row."""

from collections import Counter

import pytest

from backburner import JobFailed, Owner, PermanentError
from backburner.ai.mock import Mock
from backburner.clock import SystemClock
from backburner_apps.chat import work
from backburner_apps.chat.generation import (
    DuplicateRequest,
    TooManyRequests,
    submit_generation,
)
from backburner_apps.chat.personalities import PersonalityNotFound
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.chat.tables import memories, requests
from tests.apps.chat.conftest import DATA, PICTURE, asked, ticket

ME = Owner("default", "1")


def submitting(request, settings=None, owner=ME, **options):
    chosen = settings or ChatSettings(duplicate_seconds=3600)
    return lambda tx: submit_generation(tx, owner, request, chosen, **options)


async def test_a_reply_follows_its_attachments_and_says_what_could_not_be_read(start):
    chat = await start()
    await chat.make()
    attachments = [
        {"dataUrl": DATA, "contentType": "audio/ogg", "name": "voice.ogg"},
        {"dataUrl": "data:audio/ogg;base64,!!!", "contentType": "audio/ogg"},
        {"dataUrl": PICTURE, "contentType": "image/png", "name": "cat.png"},
        {"dataUrl": "data:image/png;base64,", "contentType": "image/png"},
        {"dataUrl": "data:,x", "contentType": "text/plain", "name": "notes.txt"},
    ]
    request = asked("look", requestId="r1", attachments=attachments)

    made = await chat.backburner.transact(submitting(request))
    reply = await ticket(chat, made.job_id).result()
    flow = await chat.backburner.engine.flows.find(made.flow_id, ME)
    steps = await chat.backburner.engine.flows.steps(flow)

    names = ["audio-r1-0", "audio-r1-1", "image-r1-0", "image-r1-1", "llm-r1"]
    assert names == sorted(step.job.step for step in steps)
    for name in names:
        found = await chat.client.get("/v1/jobs", params={"tag": name})
        assert [name] == [job["step"] for job in found.json()["items"]]
    assert reply["content"].startswith("Mock answer to: look\n\n[Attachment 1, audio")
    for told in (
        '1, audio "voice.ogg": [mock transcription',
        "2, audio: could not be read: its data URL is not valid base64]",
        '3, image "cat.png": [mock description',
        "4, image: could not be read: it is empty]",
        '5, attachment "notes.txt" (text/plain): could not be read: only audio',
    ):
        assert told in reply["content"]
    assert ("mock", "Ada") == (reply["model"], reply["personalityName"])
    assert reply["usage"]["totalTokens"] > 0
    [row] = await chat.rows(requests)
    assert (made.job_id, reply) == (row.job_id, row.reply)
    [memory] = await chat.rows(memories)
    assert (made.job_id, "1") == (memory.id, memory.user)


async def test_the_same_request_is_one_flow(start):
    chat = await start()
    await chat.make()
    request = asked(requestId="r1")
    made = await chat.backburner.transact(submitting(request))
    with pytest.raises(DuplicateRequest):
        await chat.backburner.transact(submitting(request))
    reply = await ticket(chat, made.job_id).result()

    later = ChatSettings(duplicate_seconds=0)
    again = await chat.backburner.transact(submitting(request, later))
    others = await chat.backburner.transact(
        submitting(request, later, owner=Owner("default", "2"))
    )

    assert (made.job_id, False, reply) == (again.job_id, again.is_new, again.reply)
    assert others.is_new
    assert others.job_id != made.job_id


async def test_without_an_id_the_body_is_known_within_the_window_only(start):
    chat = await start(works=False)
    await chat.make()
    first = await chat.backburner.transact(submitting(asked()))
    with pytest.raises(DuplicateRequest):
        await chat.backburner.transact(submitting(asked()))

    other = await chat.backburner.transact(submitting(asked("other")))
    later = ChatSettings(duplicate_seconds=0)
    second = await chat.backburner.transact(submitting(asked(), later))

    assert 3 == len({first.job_id, other.job_id, second.job_id})
    assert 2 == len(await chat.rows(requests))


async def test_what_is_refused_leaves_nothing_behind(start, one_minute):
    chat = await start(works=False)
    one_minute(chat)
    with pytest.raises(PersonalityNotFound, match="Personality not found: ada"):
        await chat.backburner.transact(submitting(asked()))
    await chat.make()
    few = ChatSettings(user_requests=2)
    for n in range(2):
        await chat.backburner.transact(submitting(asked(str(n)), few))
    with pytest.raises(TooManyRequests) as refused:
        await chat.backburner.transact(submitting(asked("3"), few))
    await chat.backburner.transact(
        submitting(asked("3"), few, owner=Owner("default", "2"))
    )

    assert 0 < refused.value.retry_after <= 60
    assert 3 == len(await chat.rows(requests))


class Counted(Mock):
    """A model that counts how often it writes and embeds."""

    def __init__(self):
        super().__init__(SystemClock())
        self.calls = Counter()

    async def chat(self, chat, hear=None):
        self.calls["chat"] += 1
        return await super().chat(chat, hear)

    async def embed(self, texts, model):
        self.calls["embed"] += 1
        return await super().embed(texts, model)


async def test_a_retried_reply_is_not_paid_for_again_though_memories_changed(
    start, monkeypatch
):
    provider = Counted()
    chat = await start(provider=provider)
    await chat.make()
    broken, reply_of = [PermanentError("not today")], work._reply

    def break_first(*args):
        if broken:
            raise broken.pop()
        return reply_of(*args)

    monkeypatch.setattr(work, "_reply", break_first)
    made = await chat.backburner.transact(
        submitting(asked("I like tea", requestId="r1"))
    )
    with pytest.raises(JobFailed):
        await ticket(chat, made.job_id).result()
    other = await chat.backburner.transact(
        submitting(asked("I like tea", requestId="r2"))
    )
    await ticket(chat, other.job_id).result()
    before = dict(provider.calls)
    await chat.backburner.engine.flows.retry(made.flow_id, ME)
    reply = await ticket(chat, made.job_id).result()

    assert before == provider.calls
    job = await ticket(chat, made.job_id).job()
    spent = (await chat.backburner.engine.store.spent([job.seq]))[job.seq]
    assert spent.tokens == reply["usage"]["totalTokens"]
