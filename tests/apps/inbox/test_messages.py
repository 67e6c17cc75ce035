"""A message in, tasks in the database, a reply out."""

import asyncio
import hashlib
import json

import orjson
import pytest
import telegram

from backburner_apps.inbox import book, tables
from backburner_apps.inbox.effects import QUEUE
from tests.apps.inbox.conftest import ADA, HEADER, OWNER, PATH, SECRET, written
from tests.apps.inbox.fake_bot import LONGEST, units

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
IVAN = telegram.User(8, "Иван", is_bot=False, language_code="ru-RU")
HITS = {"name": "queue_idempotency_hits_total", "queue": QUEUE}
EMOJI = "\N{PARTY POPPER}"
FIELDS = {"userId", "text", "correlationId", "idempotencyKey"} | {
    "telegramMessageId",
    "telegramChatId",
}


@BOTH
async def test_a_message_becomes_a_task_and_a_reply(start):
    inbox = await start()
    created = {"source": "ai", "sourceType": "text"}
    before = inbox.metric("tasks_created_total", **created)
    answer = await inbox.post(written("Pack <tomorrow>: passport, charger & shoes"))
    [reply] = await inbox.bot.said()
    await inbox.rest()
    [task] = await inbox.tasks()
    [user] = await inbox.rows(tables.users)
    steps = await inbox.rows(tables.subtasks)

    assert (200, {"ok": True}) == (answer.status_code, answer.json())
    assert ("Pack < >", "TODO", "ai", 1) == (
        task.title,
        task.status,
        task.source,
        task.number,
    )
    assert ["Passport", "Charger & shoes"] == [step.title for step in steps]
    assert reply.startswith("✅ Task created\n\n1. Pack < > ⏰ 2026-11-")
    assert reply.endswith("• Passport\n• Charger & shoes")
    assert ("default", "telegram:7") == (task.tenant, task.user)
    assert (7, "Ada", "ada", "en") == (
        user.telegram_id,
        user.first_name,
        user.username,
        user.language_code,
    )
    assert before + 1 == inbox.metric("tasks_created_total", **created)


async def test_the_record_closes_with_the_effect(start):
    inbox = await start(works=False)
    await inbox.say("Buy milk")
    [opened] = await inbox.rows(tables.records)
    await inbox.backburner.start_worker()
    await inbox.rest()
    [closed] = await inbox.rows(tables.records)
    payload = orjson.loads((await inbox.job()).input)
    key = ["create-new", "Buy milk", 7, payload["telegramMessageId"]]

    assert (QUEUE, "PROCESSING", None, None) == (
        opened.queue_name,
        opened.status,
        opened.result_payload,
        opened.completed_at,
    )
    assert hashlib.sha256(orjson.dumps(key)).hexdigest() == opened.idempotency_key
    assert (opened.id, "SUCCESS", {"source": "ai", "taskCount": 1}) == (
        closed.id,
        closed.status,
        closed.result_payload,
    )
    assert closed.completed_at >= closed.created_at
    assert None is closed.deleted_at


async def test_the_correlation_id_is_on_every_row_job_and_line(start):
    inbox = await start()
    answer = await inbox.say("Pack: passport, charger")
    await inbox.rest()
    correlation = answer.headers["x-request-id"]
    stored = (tables.tasks, tables.subtasks, tables.records, tables.users)
    ids = [row.correlation_id for t in stored for row in await inbox.rows(t)]
    job, [told] = await inbox.job(), await inbox.jobs("inbox.notify")
    payload, notified = orjson.loads(job.input), orjson.loads(told.input)
    ids += [payload["correlationId"], notified["correlationId"]]
    ids += [job.request_id, told.request_id]

    assert {correlation} == {*ids}
    assert (FIELDS, "telegram:7") == (payload.keys(), payload["userId"])
    assert {"chatId", "text", "parseMode", "correlationId"} == notified.keys()
    lines = [json.loads(line) for line in inbox.log.getvalue().splitlines()]
    [done] = [line for line in lines if line["event"] == "Task parsed successfully"]
    expected = {
        "level": "info",
        "taskCount": 1,
        "source": "ai",
        "provider": "mock",
        "model": "mock",
        "attempt": 1,
        "correlationId": correlation,
    }
    assert expected == {name: done[name] for name in expected}
    about = [line for line in lines if line.get("correlationId")]
    assert {correlation} == {line["correlationId"] for line in about}
    assert "assport" not in inbox.log.getvalue(), "a user's text is not logged"


async def test_several_tasks_in_russian_are_stored_and_told_together(start):
    inbox = await start()
    await inbox.say("Позвонить маме 5 мая. Купить: хлеб, сыр", IVAN)
    await inbox.bot.said()
    first, second = await inbox.tasks()
    steps = await inbox.rows(tables.subtasks)
    [reply] = inbox.bot.replies()

    assert ["Позвонить маме", "Купить"] == [first.title, second.title]
    assert [1, 2] == [first.number, second.number]
    assert first.deadline.endswith("-05-05T23:59:00+00:00")
    assert [(second.id, 0, "Хлеб"), (second.id, 1, "Сыр")] == [
        (step.task, step.position, step.title) for step in steps
    ]
    year = first.deadline[:4]
    assert (
        f"✅ Создано задач: 2\n\n1. Позвонить маме ⏰ 05.05.{year} 23:59\n\n"
        "2. Купить\n• Хлеб\n• Сыр" == reply.text
    )
    assert IVAN.id == reply.chat.id


@BOTH
async def test_the_same_update_at_once_and_later_has_one_effect(start):
    inbox = await start(slots=20)
    before = inbox.metric(**HITS)
    update = written("Buy milk")
    answers = await asyncio.gather(*(inbox.post(update) for _ in range(20)))
    await inbox.rest()
    answers.append(await inbox.post(update))
    await inbox.rest()

    assert {200} == {answer.status_code for answer in answers}
    assert ["Buy milk"] == [task.title for task in await inbox.tasks()]
    assert 1 == len(await inbox.rows(tables.records))
    assert 1 == len(inbox.bot.sent)
    assert before + 20 == inbox.metric(**HITS)
    assert "QUEUE_IDEMPOTENCY_DUPLICATE" in inbox.log.getvalue()


@BOTH
async def test_a_job_that_comes_twice_is_a_duplicate_at_the_processor(start):
    inbox = await start(slots=20)
    await inbox.say("Buy milk")
    await inbox.rest()
    before = inbox.metric(**HITS)
    first = await inbox.job()
    payload = orjson.loads(first.input)
    tickets = [
        await inbox.backburner.submit(first_of(inbox), payload, owner=OWNER)
        for _ in range(3)
    ]
    results = [await ticket.result() for ticket in tickets]
    others = payload | {"idempotencyKey": "no webhook knows it"}
    same = [
        inbox.backburner.submit(first_of(inbox), others, owner=OWNER) for _ in range(5)
    ]
    statuses = [
        (await ticket.result()).status for ticket in await asyncio.gather(*same)
    ]
    await inbox.rest()

    assert {("DUPLICATE", "QUEUE_IDEMPOTENCY_DUPLICATE")} == {
        (result.status, result.code) for result in results
    }
    assert ["DUPLICATE"] * 4 + ["SUCCESS"] == sorted(statuses)
    assert [1, 2] == [task.number for task in await inbox.tasks()]
    assert before + 7 == inbox.metric(**HITS)


async def test_without_its_record_a_message_has_many_effects(start, monkeypatch):
    # Control: nobody looks at the record, so each delivery is as good as the first.
    monkeypatch.setattr(book, "open_record", lambda *_: True)
    monkeypatch.setattr(book, "close_record", lambda *_: True)
    inbox = await start()
    update = written("Buy milk")
    await asyncio.gather(*(inbox.post(update) for _ in range(5)))
    await inbox.rest()

    assert [1, 2, 3, 4, 5] == [task.number for task in await inbox.tasks()]


def first_of(inbox):
    return inbox.backburner.registry.get("inbox.parse-message")


async def test_a_deleted_record_lets_its_message_be_processed_again(start):
    inbox = await start()
    update = written("Buy milk")
    await inbox.post(update)
    await inbox.rest()
    gone = tables.records.update().values(deleted_at=1)
    await inbox.backburner.transact(lambda tx: tx.connection.execute(gone))
    await inbox.post(update)
    await inbox.rest()

    assert [1, 2] == [task.number for task in await inbox.tasks()]
    assert 2 == len(await inbox.rows(tables.records))


async def test_an_update_without_the_secret_is_refused(start):
    inbox = await start(works=False)
    for secret in (None, "", "another", "a-secret-of-the-testé".encode()):
        answer = await inbox.post(written("Buy milk"), secret)

        assert 401 == answer.status_code
        assert "WEBHOOK_SECRET_INVALID" == answer.json()["code"]
    assert [] == await inbox.backburner.engine.store.depths()


def edited(update):
    return {"update_id": 1, "edited_message": update["message"]}


def changed(**more):
    def change(update):
        message = {**update["message"], **more}
        return {**update, "message": {k: v for k, v in message.items() if v != ""}}

    return change


IGNORED = [
    edited,
    lambda _: {"update_id": 1},
    lambda _: {"update_id": 1, "callback_query": {"id": "1"}},
    changed(**{"from": ""}),
    changed(**{"from": telegram.User(9, "R2", is_bot=True).to_dict()}),
    changed(text="", sticker={"file_id": "x"}),
    changed(text=" \n"),
]


async def test_what_is_no_new_message_is_ignored_with_200(start):
    inbox = await start(works=False)
    for change in IGNORED:
        answer = await inbox.post(change(written("Buy milk")))

        assert (200, {"ok": True}) == (answer.status_code, answer.json())
    assert [] == await inbox.backburner.engine.store.depths()
    assert [] == await inbox.rows(tables.records)


BODIES = [
    ({"content": b"not json"}, 400),
    ({"content": b"[]"}, 400),
    ({"content": b'{"update_id": "one"}'}, 400),
    ({"content": orjson.dumps(changed(chat="")(written("x")))}, 400),
    ({"content": orjson.dumps(written("x" * 10_001))}, 400),
    ({"files": {"a": b"b"}}, 415),
    ({"content": orjson.dumps(written("Buy milk"))}, 200),
]


async def test_a_body_is_read_as_json_whatever_its_type(start):
    inbox = await start(works=False)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for sent, status in BODIES:
        headers = {HEADER: SECRET, **({} if "files" in sent else form)}
        answer = await inbox.client.post(PATH, headers=headers, **sent)

        assert status == answer.status_code, sent


@BOTH
async def test_4096_emoji_are_stored_and_answered_in_parts(start):
    inbox = await start()
    await inbox.say(EMOJI * 4096)
    first, *others = await inbox.bot.said(2)
    await inbox.rest()
    [task] = await inbox.tasks()

    assert EMOJI * 2000 == task.summary, "as much as the schema allows"
    assert 200 == len(task.title)
    whole = "".join([first, *others])
    assert 2000 + 199 == whole.count(EMOJI)
    assert all(units(part) <= LONGEST for part in (first, *others))
    assert 1 == len(others)


async def test_markdown_is_escaped_as_html_is(start):
    inbox = await start(parse_mode="Markdown")
    await inbox.say(r"Fix [a_b](c) *now* with `code` <b> & \_")
    [reply] = await inbox.bot.said()
    [task] = await inbox.tasks()

    assert "Markdown" == inbox.bot.sent[0]["parse_mode"]
    assert task.title in reply


async def test_a_users_news_are_kept(start):
    inbox = await start(works=False)
    await inbox.say("Buy milk")
    renamed = telegram.User(ADA.id, "Ada L.", is_bot=False, language_code="ru")
    await inbox.say("Buy bread", renamed)
    [user] = await inbox.rows(tables.users)

    assert ("Ada L.", "ru", None) == (
        user.first_name,
        user.language_code,
        user.username,
    )
