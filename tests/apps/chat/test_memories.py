"""Personalities of a tenant, and memories of its users."""

import pytest

from backburner import Owner
from backburner_apps.chat import memories as book
from backburner_apps.chat import personalities, upkeep
from backburner_apps.chat.memories import Embedded
from backburner_apps.chat.tables import erase as erase_rows
from backburner_apps.chat.tables import forgotten, memories, requests, windows
from tests.apps.chat.conftest import chatting
from tests.apps.process import until

ME = Owner("default", "1")
ONE, TWO = {"X-User-Id": "one"}, {"X-User-Id": "two"}
PLACE = "/personalities/ada/memories"


def forget(tx):
    return book.forget(tx, ME, "ada")


def replies(chat):
    return chat.generate("my dog is called Rex")


async def answered(chat):
    """Wait until a reply is stored."""

    async def is_stored():
        return [row for row in await chat.rows(requests) if row.reply]

    await until(is_stored)


async def test_personalities_belong_to_the_tenant(start):
    chat = await start(works=False)
    new = {"id": "ada", "name": "Ada", "systemPrompt": "You are Ada."}
    made = await chat.client.post("/personalities", json=new)
    taken = await chat.client.post("/personalities", json=new)
    named = await chat.client.post(
        "/personalities", json={"name": "Zoe", "systemPrompt": "You are Zoe."}
    )
    config = {"model": "m", "temperature": 0.5}
    changed = await chat.client.patch(
        "/personalities/ada", json={"llmConfig": config, "memoryLimit": 3}
    )
    found = await chat.client.get("/personalities", headers=TWO)
    elsewhere = await chat.client.get("/personalities", headers={"X-Tenant-Id": "t"})
    wrong = await chat.client.post("/personalities", json={**new, "memoryLimit": 0})
    gone = await chat.client.delete(named.headers["Location"])
    unknown = [
        await chat.client.request(method, f"/personalities/{name}", json={})
        for name in ("none", "%00", "none/memories/%00")
        for method in ("GET", "PATCH", "DELETE")
    ]

    nothing = {"model": None, "temperature": None}
    assert (201, "/personalities/ada") == (made.status_code, made.headers["Location"])
    assert {
        **new,
        "llmConfig": nothing,
        "memoryLimit": None,
        "sharedMemory": False,
    } == made.json()
    assert {**made.json(), "llmConfig": config, "memoryLimit": 3} == changed.json()
    assert [changed.json(), named.json()] == found.json()["items"]
    assert [] == elsewhere.json()["items"]
    codes = [each.status_code for each in (taken, wrong, gone, *unknown)]
    assert [409, 400, 204, *[404] * 6, 405, 405, 404] == codes


async def remembered(chat, headers, q="dog"):
    found = await chat.client.get(PLACE, params={"q": q}, headers=headers)
    return [item["content"] for item in found.json()["items"]]


async def test_a_memory_is_its_users_unless_the_personality_shares_it(start):
    chat = await start()
    await chat.make()
    dog, cat = "my dog is called Rex", "my cat is called Tom"
    await chat.generate(dog, userId="one")
    await chat.generate(cat, userId="two")
    made = await chat.client.post(PLACE, json={"content": "the dog"}, headers=ONE)
    listed = await chat.client.get(PLACE, headers=ONE)
    [first, *_] = await remembered(chat, ONE)
    theirs = await remembered(chat, TWO)
    foreign = await chat.client.delete(made.headers["Location"], headers=TWO)

    assert (201, 2) == (made.status_code, listed.json()["total"])
    assert "the dog" == first
    assert f"User: {dog}\nReply: Mock answer to: {dog}" in await remembered(chat, ONE)
    assert not any("Rex" in told for told in theirs)
    assert 404 == foreign.status_code
    own = await chat.client.delete(made.headers["Location"], headers=ONE)
    assert 204 == own.status_code

    await chat.client.patch("/personalities/ada", json={"sharedMemory": True})
    assert any("Rex" in told for told in await remembered(chat, TWO))


@pytest.mark.one_store
async def test_the_model_is_given_what_is_similar(start):
    given = []
    chat = await start()
    await chat.make()
    provider = chat.backburner._parts.providers.of("chat")[0]
    answers = provider.chat

    async def hear(chat, hear=None):
        given.append(chat.messages)
        return await answers(chat, hear)

    provider.chat = hear
    await chat.generate("my dog is called Rex", userId="one")
    await chat.generate("Rain in Paris", userId="one")
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes?"},
    ]
    await chat.generate("who is my dog", userId="one", conversationHistory=history)
    await chat.generate("who is my dog", userId="two")

    [*_, asked, others] = given
    assert "You are Ada." in asked[0].text
    assert "my dog is called Rex" in asked[0].text
    assert "Paris" not in asked[0].text
    assert ["system", "user", "assistant", "user"] == [m.role for m in asked]
    assert "who is my dog" == asked[-1].text
    assert "Rex" not in others[0].text


async def test_a_user_can_have_everything_forgotten(start):
    chat = await start()
    await chat.make()
    await chat.generate("my dog is called Rex", userId="one")
    await chat.generate("my cat is called Tom", userId="two")
    told = await chat.generate(" /Forget ", userId="one")
    after = await remembered(chat, ONE)
    await chat.generate("my dog is called Max", userId="one")

    assert "I have forgotten everything you told me." == told.json()["content"]
    assert [] == after
    assert 1 == len(await remembered(chat, TWO, "cat"))
    assert [
        "User: my dog is called Max\nReply: Mock answer to: my dog is called Max"
    ] == (await remembered(chat, ONE))


@pytest.mark.one_store
async def test_a_reply_that_began_before_forget_is_not_remembered(start):
    chat = await start(works=False)
    await chat.make()
    await chat.generate("my dog is called Rex", params="?wait=0")
    await chat.backburner.transact(forget)
    await chat.backburner.start_worker()
    await answered(chat)
    assert [] == await chat.rows(memories)


async def test_forget_waits_for_a_reply_that_is_being_stored(
    migrated_url, monkeypatch, halt
):
    monkeypatch.setattr(book, "remember", halt.before(book.remember))
    async with chatting(migrated_url) as chat:
        await chat.make()
        forgets = chat.backburner.transact(forget)
        reply, deleted = await halt.cross(chat, replies(chat), forgets)

        assert (200, 1) == (reply.status_code, deleted)
        assert [] == await chat.rows(memories)


async def test_a_reply_waits_for_forget_and_is_not_remembered(migrated_url, halt):
    async with chatting(migrated_url, works=False) as chat:
        await chat.make()
        await chat.generate("my dog is called Rex", params="?wait=0")

        async def reply():
            await chat.backburner.start_worker()
            await answered(chat)

        forgets = chat.backburner.transact(halt.after(forget))
        await halt.cross(chat, forgets, reply())
        assert [] == await chat.rows(memories)
        await chat.generate("and my cat Tom")
        assert 1 == len(await chat.rows(memories))


@pytest.mark.one_store
async def test_forget_of_a_deleted_personality_leaves_no_row(start):
    chat = await start(works=False)
    assert 0 == await chat.backburner.transact(forget)
    assert [] == await chat.rows(forgotten)


async def test_a_personality_deleted_while_the_model_writes_remembers_nothing(start):
    """The reply arrives; a new personality with the id has no memory of it either."""
    chat = await start()
    await chat.make()
    provider = chat.backburner._parts.providers.of("chat")[0]
    answers, deleted = provider.chat, []

    async def delete_and_answer(asked, hear=None):
        gone = await chat.client.delete("/personalities/ada")
        deleted.append(gone.status_code)
        if len(deleted) == 2:
            await chat.make()
        return await answers(asked, hear)

    provider.chat = delete_and_answer
    one = await chat.generate("my dog is called Rex")
    await chat.make()
    two = await chat.generate("my cat is called Tom")

    assert [200, 200, 204, 204] == [one.status_code, two.status_code, *deleted]
    assert "Mock answer to: my dog is called Rex" == one.json()["content"]
    assert [] == await chat.rows(memories)


def writes(chat):
    return chat.client.post(PLACE, json={"content": "the dog"})


@pytest.mark.parametrize(("stores", "status"), [(replies, 200), (writes, 201)])
async def test_a_deletion_waits_for_a_memory_that_is_being_stored(
    migrated_url, monkeypatch, halt, stores, status
):
    monkeypatch.setattr(book, "remember", halt.before(book.remember))
    async with chatting(migrated_url) as chat:
        await chat.make()
        delete = chat.client.delete("/personalities/ada")
        stored, deleted = await halt.cross(chat, stores(chat), delete)

        assert (status, 204) == (stored.status_code, deleted.status_code)
        assert [] == await chat.rows(memories)


@pytest.mark.parametrize(("stores", "status"), [(replies, 200), (writes, 404)])
async def test_a_memory_waits_for_a_deletion_and_is_not_stored(
    migrated_url, monkeypatch, halt, stores, status
):
    monkeypatch.setattr(personalities, "delete", halt.after(personalities.delete))
    async with chatting(migrated_url) as chat:
        await chat.make()
        delete = chat.client.delete("/personalities/ada")
        deleted, stored = await halt.cross(chat, delete, stores(chat))

        assert (status, 204) == (stored.status_code, deleted.status_code)
        assert [] == await chat.rows(memories)


async def test_a_personality_that_another_one_deletes_is_not_found(
    migrated_url, monkeypatch, halt
):
    monkeypatch.setattr(personalities, "delete", halt.after(personalities.delete))
    async with chatting(migrated_url) as chat:
        await chat.make()
        twice = [chat.client.delete("/personalities/ada") for _ in range(2)]
        deleted = await halt.cross(chat, *twice)

        assert [204, 404] == [each.status_code for each in deleted]


async def clean(chat):
    """Clean up; the schedule may have done so just before."""
    ticket = await chat.backburner.submit(upkeep.clean_up, None)
    await ticket.result()


async def test_clean_up_deletes_old_requests_and_memories_over_the_limit(start):
    chat = await start()
    await chat.make()
    await chat.generate("old")
    users = [Owner("default", user) for user in ("one", "two")]

    def store(tx):
        for owner in users:
            for n in range(5):
                vector = Embedded.of("mock", [1.0])
                book.remember(tx, f"{owner.user}{n}", owner, "ada", str(n), vector)

    await chat.backburner.transact(store)
    await clean(chat)
    assert (1, 11) == (len(await chat.rows(requests)), len(await chat.rows(memories)))
    change = {"memoryLimit": 2}
    await chat.client.patch("/personalities/ada", json=change)
    age = requests.update().values(created_at=requests.c.created_at - 25 * 3_600_000)
    await chat.backburner.transact(lambda tx: tx.connection.execute(age))

    await clean(chat)
    assert [] == await chat.rows(requests)
    kept = {row.id for row in await chat.rows(memories) if row.user != "1"}
    assert {"one3", "one4", "two3", "two4"} == kept
    await chat.client.patch("/personalities/ada", json={"sharedMemory": True})
    await clean(chat)
    assert 2 == len(await chat.rows(memories))


@pytest.mark.one_store
async def test_a_users_rows_can_be_erased(start):
    chat = await start()
    await chat.make()
    for user in ("one", "two"):
        await chat.generate(userId=user)
        await chat.generate("/forget", userId=user)
        await chat.generate("again", userId=user)
    one = Owner("default", "one")
    while await chat.backburner.transact(lambda tx: erase_rows(tx, one, 1)):
        pass

    for table in (memories, requests, windows, forgotten):
        assert {"two"} == {row.user for row in await chat.rows(table)}


@pytest.mark.one_store
async def test_both_schedules_are_the_engines(start):
    chat = await start(works=False)

    async def listed():
        items = (await chat.client.get("/v1/schedules")).json()["items"]
        return {item["name"]: item["cron"] for item in items}

    crons = await until(listed)
    stuck = await chat.backburner.submit(upkeep.find_stuck, None)
    await chat.backburner.start_worker()

    assert {
        "cleanup-cache": "* * * * *",
        "find-stuck-jobs": "*/30 * * * * *",
    } == crons
    assert 0 == await stuck.result()
