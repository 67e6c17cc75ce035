"""What a user may ask the bot itself."""

import asyncio

import telegram

from tests.apps.inbox.conftest import written

EVA = telegram.User(8, "Eva", is_bot=False, language_code="de")
IVAN = telegram.User(9, "Иван", is_bot=False, language_code="ru")


ANSWERS = [
    ("/start", EVA, "👋 Hello!"),
    ("/start@a_bot", IVAN, "👋 Здравствуйте!"),
    ("/help", EVA, "Send a text"),
    ("/HELP me", EVA, "Send a text"),
    ("/help", IVAN, "Отправьте текст"),
    ("/nothing", EVA, "Send a text"),
    ("/tasks", EVA, "🎉 You have no open tasks."),
    ("/done", EVA, "Write the number"),
    ("/done milk", IVAN, "Напишите номер"),
    ("/done 12345678901", EVA, "Write the number"),
    ("/done 4", EVA, "There is no task 4."),
]


async def test_a_command_is_answered(start):
    inbox = await start()
    for number, (text, sender, begins) in enumerate(ANSWERS, 1):
        await inbox.say(text, sender)
        replies = await inbox.bot.said(number)

        assert replies[-1].startswith(begins)
    assert [] == await inbox.tasks()


async def test_tasks_are_listed_and_done_by_their_numbers(start):
    inbox = await start()
    for text in ("Buy milk", "Call <mum>", "Run"):
        await inbox.say(text)
        await inbox.rest()
    await inbox.say("/done 2")
    await inbox.rest()
    await inbox.say("/tasks")
    await inbox.rest()
    await inbox.say("/done 2")
    *_, done, listed, again = await inbox.bot.said(6)

    assert "✅ Done: 2. Call <mum>" == done
    assert "📋 Open tasks\n\n1. Buy milk\n3. Run" == listed
    assert "This task is done already: 2. Call <mum>" == again
    assert ["TODO", "DONE", "TODO"] == [task.status for task in await inbox.tasks()]


async def test_a_command_that_comes_again_is_done_once(start):
    inbox = await start()
    await inbox.say("Buy milk")
    await inbox.rest()
    update = written("/done 1")
    await asyncio.gather(*(inbox.post(update) for _ in range(5)))
    await inbox.rest()
    replies = await inbox.bot.said(2)

    assert ["✅ Done: 1. Buy milk"] == replies[1:]


async def test_others_tasks_are_nobodys(start):
    inbox = await start()
    await inbox.say("Buy milk", EVA)
    await inbox.rest()
    await inbox.say("/done 1", IVAN)
    await inbox.rest()
    await inbox.say("/tasks", IVAN)
    *_, done, listed = await inbox.bot.said(3)

    assert (True, True) == (
        done.startswith("Задачи 1 нет"),
        listed.startswith("🎉 Открытых задач нет"),
    )


async def test_a_long_list_says_what_it_leaves_out(start, monkeypatch):
    monkeypatch.setattr("backburner_apps.inbox.chat_commands.SHOWN", 2)
    inbox = await start()
    await inbox.say("a\nb\nc")
    await inbox.rest()
    await inbox.say("/tasks")
    *_, listed = await inbox.bot.said(2)

    assert listed.endswith("1. A\n2. B\n… and 1 more")
