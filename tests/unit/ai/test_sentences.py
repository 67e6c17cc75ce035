"""The mock reads English sentences about things to do."""

from datetime import UTC, date, datetime, time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.ai.sentences import LONGEST_TITLE, task_of, tasks_of

SUNDAY = datetime(2026, 11, 15, 20, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "title", "day", "hour"),
    [
        ("Buy milk tomorrow", "Buy milk", date(2026, 11, 16), None),
        ("ship it today", "Ship it", date(2026, 11, 15), None),
        ("take the trash out tonight", "Take the trash out", SUNDAY.date(), time(19)),
        ("Call mum next Friday at 5pm", "Call mum", date(2026, 11, 20), time(17)),
        ("Call mum by Friday, 5:30 pm", "Call mum", date(2026, 11, 20), time(17, 30)),
        ("call Bob on Sunday", "Call Bob", date(2026, 11, 22), None),
        ("clean the garage in 3 days", "Clean the garage", date(2026, 11, 18), None),
        ("review in two weeks", "Review", date(2026, 11, 29), None),
        ("pay rent on 5 May", "Pay rent", date(2027, 5, 5), None),
        ("pay rent on December 5th", "Pay rent", date(2026, 12, 5), None),
        ("Dentist 2026-12-24 at 09:15", "Dentist", date(2026, 12, 24), time(9, 15)),
        ("renew it by the end of the month", "Renew it", date(2026, 11, 30), None),
        ("the day after tomorrow go home", "Go home", date(2026, 11, 17), None),
        ("lunch at noon tomorrow", "Lunch", date(2026, 11, 16), time(12)),
        ("call Bob at 17:30", "Call Bob", date(2026, 11, 16), time(17, 30)),
        ("call Bob at 22:30", "Call Bob", date(2026, 11, 15), time(22, 30)),
        ("stretch in 2 hours", "Stretch", date(2026, 11, 15), time(22)),
        ("meet next week", "Meet", date(2026, 11, 16), None),
        ("Sat down with Marco", "Sat down with Marco", None, None),
        ("no date at all", "No date at all", None, None),
        ("Купить молоко завтра", "Купить молоко", date(2026, 11, 16), None),
        (
            "Позвонить маме послезавтра в 5 вечера",
            "Позвонить маме",
            date(2026, 11, 17),
            time(17),
        ),
        ("оплатить счёт 5 мая", "Оплатить счёт", date(2027, 5, 5), None),
        ("отчёт до пятницы", "Отчёт", date(2026, 11, 20), None),
        ("в следующую среду к врачу", "К врачу", date(2026, 11, 18), None),
        ("через 3 дня убрать гараж", "Убрать гараж", date(2026, 11, 18), None),
        ("через неделю сдать книгу", "Сдать книгу", date(2026, 11, 22), None),
        ("сегодня в 22:30 уснуть", "Уснуть", date(2026, 11, 15), time(22, 30)),
        ("завтра утром на рынок", "На рынок", date(2026, 11, 16), time(9)),
        ("в 7 раз больше", "В 7 раз больше", None, None),
    ],
)
def test_it_understands_when(text, title, day, hour):
    task = task_of(text, SUNDAY)

    assert (title, day, hour) == (task.title, task.day, task.hour)


@pytest.mark.parametrize(
    ("text", "rule", "day"),
    [
        ("water plants every Monday", "FREQ=WEEKLY;BYDAY=MO", date(2026, 11, 16)),
        ("gym every Tue and Fri", "FREQ=WEEKLY;BYDAY=TU,FR", date(2026, 11, 17)),
        (
            "stand up every weekday",
            "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR",
            date(2026, 11, 16),
        ),
        ("backup every 2 weeks", "FREQ=WEEKLY;INTERVAL=2", date(2026, 11, 16)),
        ("pay every month on the 1st", "FREQ=MONTHLY;BYMONTHDAY=1", date(2026, 12, 1)),
        ("read daily", "FREQ=DAILY", date(2026, 11, 16)),
        ("everyone is here", None, None),
    ],
)
def test_it_understands_how_often(text, rule, day):
    task = task_of(text, SUNDAY)

    assert (rule, day) == (task.recurrence, task.day)


@pytest.mark.parametrize(
    ("text", "priority", "title"),
    [
        ("urgent: fix it", "urgent", "Urgent"),
        ("fix it asap", "urgent", "Fix it"),
        ("fix it!!", "high", "Fix it"),
        ("fix it!!!", "urgent", "Fix it"),
        ("fix it, it's important", "high", "Fix it"),
        ("fix it, low priority", "low", "Fix it"),
        ("fix it", "medium", "Fix it"),
    ],
)
def test_it_understands_how_urgent(text, priority, title):
    task = task_of(text, SUNDAY)

    assert priority == task.priority
    if ":" not in text:
        assert title == task.title


@pytest.mark.parametrize(
    ("text", "title", "steps"),
    [
        ("buy milk: whole, 2 litres", "Buy milk", ["Whole", "2 litres"]),
        (
            "first draft it, then send it and finally book the room",
            "Draft it",
            ["Draft it", "Send it", "Book the room"],
        ),
        (
            "Plan the party by Saturday:\n- invite friends\n- order cake\n* music",
            "Plan the party",
            ["Invite friends", "Order cake", "Music"],
        ),
        ("pack: tent, stove and boots tomorrow", "Pack", ["Tent", "Stove", "boots"]),
        ("meet at 5:30", "Meet", []),
    ],
)
def test_it_understands_steps(text, title, steps):
    task = task_of(text, SUNDAY)

    assert title == task.title
    assert [step.lower() for step in steps] == [step.lower() for step in task.steps]


def test_a_category_is_named_or_guessed():
    assert "errands" == task_of("go to the bank #errands", SUNDAY).category
    assert "finance" == task_of("go to the bank", SUNDAY).category
    assert task_of("think", SUNDAY).category is None


@given(st.text(max_size=400), st.datetimes(timezones=st.just(UTC)))
def test_any_text_at_any_time_gives_a_task(text, now):
    now = now.replace(year=min(max(now.year, 2), 9990))
    task = task_of(text, now)

    assert 0 < len(task.title) <= LONGEST_TITLE, "a task has a title that fits"


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("Buy milk tomorrow", ["Buy milk"]),
        ("Buy milk tomorrow. Call mum on Friday.", ["Buy milk", "Call mum"]),
        ("- buy milk\n- call mum", ["Buy milk", "Call mum"]),
        ("buy milk\ncall mum", ["Buy milk", "Call mum"]),
        ("Party:\n- cake\n- candles", ["Party"]),
        ("Купить молоко завтра. Позвонить маме.", ["Купить молоко", "Позвонить маме"]),
        ("\n".join("abcdefg"), ["A", "B", "C", "D", "E"]),
    ],
)
def test_a_message_is_one_task_or_several(text, titles):
    assert titles == [task.title for task in tasks_of(text, SUNDAY)]


def test_a_russian_list_with_a_heading_is_steps():
    [task] = tasks_of("Собрать вещи завтра: паспорт, зарядку и обувь", SUNDAY)

    assert ("Собрать вещи", date(2026, 11, 16)) == (task.title, task.day)
    assert ["Паспорт", "Зарядку", "Обувь"] == task.steps
