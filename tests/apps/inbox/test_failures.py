"""Every way in which a message is not understood or not stored, and what follows."""

import asyncio
import json
from datetime import timedelta

import orjson
import pytest
import sqlalchemy as sa

from backburner import Owner
from backburner.domain.jobs.job import JobState
from backburner_apps.inbox import tables
from backburner_apps.inbox.work import PATIENCE, RETRY, parse_message
from tests.apps.inbox.conftest import FAILED, OWNER, SUCCEEDED

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
FALLBACK = "⚠️ I could not work out tasks from your message."
ERROR = "❌ Something went wrong and your message could not be processed."
KEPT = "I saved it unchanged as a task:"
CREATED = "✅ Task created"
OUTCOMES = {
    "500": (3, "AI_PARSE_PROVIDER_ERROR", ERROR),
    "drop": (3, "AI_PARSE_PROVIDER_ERROR", ERROR),
    "broken": (3, "AI_PARSE_PROVIDER_ERROR", ERROR),
    "429": (3, "AI_PARSE_RATE_LIMIT", ERROR),
    "hang": (3, "AI_PARSE_TIMEOUT", ERROR),
    "400": (1, "AI_PARSE_PROVIDER_ERROR", ERROR),
    "401": (1, "AI_PARSE_PROVIDER_ERROR", ERROR),
    "404": (1, "AI_PARSE_PROVIDER_ERROR", ERROR),
    "no quota": (1, "AI_PARSE_PROVIDER_ERROR", ERROR),
    "refuse": (1, "AI_PARSE_PROVIDER_ERROR", ERROR),
    "nonsense": (1, "AI_PARSE_INVALID_JSON", FALLBACK),
    "truncated": (1, "AI_PARSE_INVALID_JSON", FALLBACK),
    "misfit": (1, "AI_PARSE_ZOD_VALIDATION", FALLBACK),
    "nonsense once": (1, None, CREATED),
    "misfit once": (1, None, CREATED),
    "500 times=2": (3, None, CREATED),
    "429 retry-after=1 times=2": (1, None, CREATED),
}
"""By how the model fails: attempts, code and reply."""


def by_mark(jobs):
    return {orjson.loads(job.input)["text"].split("]]")[0][8:]: job for job in jobs}


@BOTH
async def test_each_failure_of_a_model_ends_as_it_should(start):
    inbox = await start(ai_timeout_ms=300)
    counts = [{"result": r, "provider": "mock"} for r in ("success", "fallback")]
    before = [inbox.metric("ai_parse_total", **labels) for labels in counts]
    for mark in OUTCOMES:
        await inbox.say(f"[[mock: {mark}]] Buy milk")
    await inbox.rest()
    jobs = by_mark(await inbox.jobs("inbox.parse-message"))
    tasks = {task.correlation_id: task for task in await inbox.tasks()}
    records = {row.correlation_id: row for row in await inbox.rows(tables.records)}
    replies = {
        orjson.loads(job.input)["correlationId"]: orjson.loads(job.input)["text"]
        for job in await inbox.jobs("inbox.notify")
    }

    for mark, (attempts, code, phrase) in OUTCOMES.items():
        job = jobs[mark]
        result = orjson.loads(job.output)
        task, reply = tasks[job.request_id], replies[job.request_id]
        is_parsed = code is None
        source = "ai" if is_parsed else "fallback"
        assert (SUCCEEDED, attempts) == (job.state, job.attempt), mark
        assert (code, source) == (result["code"], result["source"]), mark
        assert reply.startswith(phrase), mark
        assert is_parsed == (KEPT not in reply), mark
        text = f"[[mock: {mark}]] Buy milk"
        expected = (
            ("TODO", None, None, "SUCCESS")
            if is_parsed
            else ("PARSE_FAILED", text, "TEXT", "FALLBACK")
        )
        assert expected == (
            task.status,
            task.original_input,
            task.original_input_type,
            records[job.request_id].status,
        ), mark
    assert [] == await inbox.rows(tables.subtasks)
    assert len(OUTCOMES) == len(tasks) == len(inbox.bot.sent)
    after = [inbox.metric("ai_parse_total", **labels) for labels in counts]
    parsed = sum(code is None for _, code, _ in OUTCOMES.values())
    assert [parsed, len(OUTCOMES) - parsed] == [
        b - a for a, b in zip(before, after, strict=True)
    ]
    check_log(inbox)


def check_log(inbox):
    lines = [json.loads(line) for line in inbox.log.getvalue().splitlines()]
    told = {
        name: {(line["level"], line[key]) for line in lines if line["event"] == name}
        for name, key in (
            ("AI provider error", "errorCode"),
            ("Fallback used", "reasonCode"),
            ("AI response invalid, corrective retry", "reasonCode"),
        )
    }
    troubles = {code for _, code, _ in OUTCOMES.values() if code}
    unusable = {"AI_PARSE_INVALID_JSON", "AI_PARSE_ZOD_VALIDATION"}
    assert {("error", c) for c in troubles - unusable} == told["AI provider error"]
    assert {("warning", code) for code in troubles} == told["Fallback used"]
    corrected = told["AI response invalid, corrective retry"]
    assert {("warning", code) for code in unusable} == corrected
    for line in lines:
        if line["event"].startswith("AI response invalid"):
            assert line["responseLength"] > 0
        if line["event"].startswith(("AI ", "Fallback")):
            named = (line["provider"], line["model"], line["correlationId"])
            assert all(named)
            assert line["attempt"] in {1, 2, 3}
    assert "milk" not in inbox.log.getvalue(), "a user's text is not logged"


async def test_the_model_is_corrected_exactly_once(start):
    inbox = await start()
    for mark in ("nonsense", "misfit", "misfit once"):
        await inbox.say(f"[[mock: {mark}]] Buy milk")
    await inbox.rest()
    jobs = await inbox.jobs("inbox.parse-message")
    spent = await inbox.backburner.engine.store.spent([job.seq for job in jobs])

    assert [2, 2, 2] == [used.calls for used in spent.values()]


def test_attempts_are_three_after_one_and_two_seconds():
    delays = [RETRY.delay(n, roll) for n in (1, 2) for roll in (0.0, 0.99)]

    assert [1, 1, 2, 2] == [delay / timedelta(seconds=1) for delay in delays]
    assert (3, timedelta(minutes=10)) == (RETRY.max_attempts, PATIENCE)
    assert (RETRY, PATIENCE) == (parse_message.retry, parse_message.patience)


@BOTH
async def test_tasks_that_cannot_be_stored_are_not_stored_in_part(start):
    inbox = await start()
    drop = sa.text("ALTER TABLE inbox_subtasks RENAME TO away")
    await inbox.backburner.transact(lambda tx: tx.connection.execute(drop))
    await inbox.say("Pack: passport, charger")
    [reply] = await inbox.bot.said()
    await inbox.rest()
    job, [record] = await inbox.job(), await inbox.rows(tables.records)

    assert (FAILED, 3, "TASK_CREATE_FAILED") == (job.state, job.attempt, job.error.code)
    assert ERROR == reply
    assert [] == await inbox.tasks(), "the task was rolled back with its steps"
    assert ("FAILED", {"code": "TASK_CREATE_FAILED"}, None) == (
        record.status,
        record.result_payload,
        record.completed_at,
    )

    back = sa.text("ALTER TABLE away RENAME TO inbox_subtasks")
    await inbox.backburner.transact(lambda tx: tx.connection.execute(back))
    await inbox.backburner.engine.retry(job.id, OWNER)
    await inbox.rest()
    [task], [record] = await inbox.tasks(), await inbox.rows(tables.records)

    assert ("Pack", 1, "SUCCESS") == (task.title, task.number, record.status)
    assert 2 == len(await inbox.rows(tables.subtasks))
    assert (await inbox.bot.said(2))[1].startswith(CREATED)


@pytest.mark.parametrize("missing", ["text", "userId", "correlationId"])
async def test_a_payload_that_is_not_valid_is_a_dead_letter_at_once(start, missing):
    inbox = await start()
    payload = {
        "userId": "telegram:7",
        "text": "secret words",
        "telegramMessageId": 1,
        "telegramChatId": 7,
        "correlationId": "c",
        "idempotencyKey": "k",
    }
    del payload[missing]
    ticket = await inbox.backburner.submit(
        parse_message,
        payload,
        owner=OWNER,
        completion={"capability": ended_of(inbox), "input": {"message": payload}},
    )
    await inbox.rest()
    job = await inbox.backburner.engine.find(ticket.id, OWNER)

    assert (FAILED, 1, "QUEUE_JOB_PAYLOAD_INVALID") == (
        job.state,
        job.attempt,
        job.error.code,
    )
    assert missing in job.error.message
    assert "secret" not in job.error.message
    assert ([], []) == (await inbox.tasks(), inbox.bot.sent)


def ended_of(inbox):
    return inbox.backburner.registry.get("inbox.message-ended")


async def test_a_message_that_expires_is_kept(start):
    inbox = await start(deadline_seconds=0.5)
    await inbox.say("[[mock: hang]] Buy milk")
    [reply] = await inbox.bot.said()
    await inbox.rest()
    [task], job = await inbox.tasks(), await inbox.job()

    assert (FAILED, "EXPIRED") == (job.state, job.error.code)
    assert ("PARSE_FAILED", "[[mock: hang]] Buy milk") == (
        task.status,
        task.original_input,
    )
    assert reply.startswith(ERROR)
    assert KEPT in reply


async def test_a_message_whose_waits_are_over_is_kept_and_not_taken_up_again(start):
    inbox = await start()
    await inbox.say("[[mock: 429 retry-after=601 times=1]] Buy milk")
    await inbox.bot.said()
    await inbox.rest()
    job = await inbox.job()
    await inbox.backburner.engine.retry(job.id, OWNER)
    await inbox.rest()
    [task], again = await inbox.tasks(), await inbox.job()

    assert ("EXPIRED", "PARSE_FAILED") == (job.error.code, task.status)
    assert (SUCCEEDED, "DUPLICATE") == (
        again.state,
        orjson.loads(again.output)["status"],
    )
    assert 1 == len(inbox.bot.sent)


async def test_a_cancelled_message_is_told_of(start):
    inbox = await start()
    await inbox.say("[[mock: hang]] Buy milk")
    job = await inbox.job()
    await inbox.backburner.engine.cancel(job.id, OWNER)
    [reply] = await inbox.bot.said()
    await inbox.rest()
    [record] = await inbox.rows(tables.records)

    assert (ERROR, "FAILED") == (reply, record.status)
    assert JobState.CANCELLED is (await inbox.job()).state
    assert [] == await inbox.tasks()


@BOTH
async def test_one_effect_though_messages_of_one_user_come_at_once(start):
    inbox = await start(slots=30)
    await asyncio.gather(*(inbox.say(f"Buy {n} eggs") for n in range(30)))
    await inbox.rest()
    tasks = await inbox.tasks()

    assert list(range(1, 31)) == [task.number for task in tasks]
    assert {f"Buy {n} eggs" for n in range(30)} == {task.title for task in tasks}
    assert {OWNER} == {Owner(task.tenant, task.user) for task in tasks}
