"""`POST /ai/generate`: what is answered, and when."""

import asyncio

import httpx2
import orjson
import pytest

from backburner import JobState
from backburner.ports.store.maintenance import JobFilter
from backburner_apps.chat.tables import memories, requests
from tests.apps.chat.conftest import PICTURE, body
from tests.apps.process import until


async def jobs(chat, **where):
    return await chat.backburner.engine.jobs(JobFilter(**where), limit=500)


async def test_a_request_is_answered_with_its_reply(start):
    chat = await start()
    await chat.make()
    answered = await chat.generate(
        "hello there",
        requestId="r1",
        conversationHistory=[{"role": "user", "content": "before"}],
        attachments=[
            {"dataUrl": PICTURE, "contentType": "image/png", "name": "cat.png"},
            {"url": "http://127.0.0.1:9/x.png", "contentType": "image/png"},
        ],
    )
    assert 200 == answered.status_code, answered.text
    told = answered.json()

    assert ["content", "model", "personalityName", "usage"] == sorted(told)
    assert '1, image "cat.png": [mock description' in told["content"]
    assert "2, image: could not be read" in told["content"]
    [job] = await jobs(chat, tag="llm-r1")
    progress = [
        event.data["done"]
        async for event in chat.backburner.engine.events(job)
        if event.type == "job.progress"
    ]
    # Notes in quick succession are told together; the last is always told.
    assert set(progress) <= {10, 30, 50, 90, 100}
    assert 100 == progress[-1]


@pytest.mark.one_store
async def test_a_form_is_read_as_json_and_multipart_is_not(start):
    chat = await start()
    await chat.make()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    content = orjson.dumps(body())
    plain = await chat.client.post("/ai/generate", content=content, headers=form)
    parts = await chat.client.post("/ai/generate", files={"a": b"b"})
    wrong = await chat.generate(attachments=[{"contentType": "image/png"}])
    nothing = await chat.generate(" ")
    nul = await chat.generate("a\0b")

    assert [200, 415, 400, 400, 400] == [
        each.status_code for each in (plain, parts, wrong, nothing, nul)
    ]


async def test_a_request_need_not_be_waited_for(start):
    chat = await start(works=False)
    await chat.make()
    at_once = await chat.generate(params="?wait=0", requestId="r1")
    ran_out = await chat.generate("other", params="?wait=1", requestId="r2")

    for answered, request_id in ((at_once, "r1"), (ran_out, "r2")):
        told = answered.json()
        assert 202 == answered.status_code
        assert {"requestId": request_id, "jobId": told["jobId"]} == told
        assert f"/v1/jobs/{told['jobId']}" == answered.headers["Location"]
        found = await chat.client.get(answered.headers["Location"])
        assert "queued" == found.json()["state"]


@pytest.mark.one_store
async def test_a_client_that_leaves_does_not_stop_its_job(start):
    chat = await start(works=False)
    await chat.make()

    async def is_there():
        return await jobs(chat, tag="llm-r1")

    async with httpx2.AsyncClient(base_url=chat.url, trust_env=False) as client:
        waiting = asyncio.create_task(
            client.post("/ai/generate", json=body(requestId="r1"), timeout=60)
        )
        await until(is_there)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await chat.backburner.start_worker()

    async def is_done():
        return [row for row in await chat.rows(requests) if row.reply]

    [row] = await until(is_done)
    assert "r1" == row.request_id
    again = await start(duplicate_seconds=0)
    assert row.reply == (await again.generate(requestId="r1")).json()


async def test_what_cannot_be_is_refused_and_nothing_is_queued(start, one_minute):
    chat = await start(user_requests=1)
    one_minute(chat)
    unknown = await chat.generate()
    await chat.make()
    first = await chat.generate("one")
    second = await chat.generate("two")

    assert (404, "PERSONALITY_NOT_FOUND", "Personality not found: ada") == (
        unknown.status_code,
        unknown.json()["code"],
        unknown.json()["detail"],
    )
    assert [200, 429] == [first.status_code, second.status_code]
    assert "USER_LIMIT" == second.json()["code"]
    assert 0 < int(second.headers["Retry-After"]) <= 60
    assert 1 == len(await jobs(chat, queue="ai-jobs"))


async def test_a_job_that_fails_is_a_502_with_its_error(start):
    chat = await start()
    await chat.make()
    failed = await chat.generate("[[mock: 401]]", requestId="r1")
    again = await start(duplicate_seconds=0)
    repeated = await again.generate("[[mock: 401]]", requestId="r1")

    assert [502, 502] == [failed.status_code, repeated.status_code]
    assert "AI_UNAUTHORIZED" == failed.json()["code"]
    assert failed.json()["detail"] == repeated.json()["detail"]
    assert 1 == len(await jobs(chat, tag="llm-r1"))
    assert [] == await chat.rows(memories)


@pytest.mark.one_store
async def test_a_personality_that_goes_while_its_job_waits_fails_it(start):
    chat = await start(works=False)
    await chat.make()
    await chat.generate(params="?wait=0", requestId="r1")
    assert 204 == (await chat.client.delete("/personalities/ada")).status_code
    await chat.backburner.start_worker()
    [job] = await jobs(chat, tag="llm-r1")
    ended = await chat.backburner.engine.wait(job.id, timeout=60)

    assert JobState.FAILED is ended.state
    assert "Personality not found: ada" == ended.error.message
    assert 1 == ended.attempt


@pytest.mark.one_store
async def test_a_run_over_its_time_fails_and_is_reported(start):
    chat = await start(lock_seconds=0.2)
    await chat.make()
    failed = await chat.generate("[[mock: hang]]", requestId="r1")

    async def is_logged():
        return chat.lines("Job failed")

    assert 502 == failed.status_code
    assert "Job exceeded lock duration" == failed.json()["detail"]
    [stuck] = chat.lines("Stuck job detected")
    [line] = await until(is_logged)
    assert line["jobId"] == stuck["jobId"]
    assert stuck["durationMs"] >= 200


@pytest.mark.one_store
async def test_jobs_of_the_queue_are_counted(start):
    chat = await start(works=False)
    await chat.make()
    await chat.generate(params="?wait=0", attachments=[])
    json = {"Accept": "application/json"}
    named = await chat.client.get("/metrics/queues")
    same = await chat.client.get("/metrics", headers=json)
    plain = await chat.client.get("/metrics")
    other = await chat.client.get("/metrics/queues?queue=chat-upkeep")
    unknown = await chat.client.get("/metrics", headers=json, params={"queue": "no"})
    await chat.backburner.start_worker()

    async def is_done():
        told = (await chat.client.get("/metrics/queues")).json()["queue"]
        return told if told["completed"] and not told["total"] else None

    waiting = {"waiting": 1, "active": 0, "completed": 0, "failed": 0, "total": 1}
    assert waiting == named.json()["queue"] == same.json()["queue"]
    assert ["queue", "timestamp"] == sorted(named.json())
    assert "# HELP backburner_" in plain.text
    assert "waiting" in other.json()["queue"]
    assert 404 == unknown.status_code
    ended = {"waiting": 0, "active": 0, "completed": 1, "failed": 0, "total": 0}
    assert ended == await until(is_done)


@pytest.mark.one_store
async def test_the_fleets_model_calls_are_limited(start):
    chat = await start()
    found = (await chat.client.get("/v1/lanes")).json()["items"]
    [lane] = [each for each in found if each["name"] == "chat/models"]

    limits = lane["at_once"], lane["spacing_seconds"], lane["requests"]
    assert (5, 0.2, 300) == limits


@pytest.mark.one_store
async def test_another_user_is_named_by_who_may_act_for_others_only(start):
    chat = await start(keyed=True)
    await chat.make()
    own = await chat.key("ben")
    bot = await chat.key(None, "jobs:read", "jobs:write", "users:act")

    mine = await chat.generate(userId="ben", headers=own)
    others = await chat.generate(userId="eve", headers=own)
    acted = await chat.generate(userId="eve", headers=bot)
    nobody = await chat.generate()
    made = await chat.client.post("/personalities", json={}, headers=own)
    counted = await chat.client.get("/metrics/queues", headers=own)

    codes = [each.status_code for each in (mine, others, acted, nobody, made, counted)]
    assert [200, 403, 200, 401, 403, 403] == codes
    users = {row.user for row in await chat.rows(requests)}
    assert {"ben", "eve"} == users
