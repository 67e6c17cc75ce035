"""Parses Russian dates and times for the mock; see `when.py` for English."""

import re
from datetime import date, time, timedelta
from typing import Final

from backburner.ai.when import (
    Reader,
    When,
    in_month,
    month_after,
    next_weekday,
    valid_date,
)

_MONTHS: Final = (
    *("января", "февраля", "марта", "апреля", "мая", "июня"),
    *("июля", "августа", "сентября", "октября", "ноября", "декабря"),
)
_DAYS: Final = ("понедельник", "вторник", "сред", "четверг", "пятниц", "суббот")
_DAY: Final = (
    r"(понедельника?|вторника?|сред[ауы]|четверга?|пятниц[ауы]|суббот[ауы]|"
    r"воскресень[ея])"
)
_WORDS: Final = (
    *("один одну", "два две", "три", "четыре", "пять"),
    *("шесть", "семь", "восемь", "девять", "десять"),
)
_NUMBERS: Final = {
    word: n for n, words in enumerate(_WORDS, 1) for word in words.split()
}
_COUNT: Final = rf"(?:(\d{{1,3}}|{'|'.join(_NUMBERS)})\s+)?"
_UNIT: Final = r"день|дня|дней|недел[юиь]|месяц(?:а|ев)?|года?|лет"
_PARTS: Final = {"утр": 9, "дн": 15, "веч": 19, "ноч": 21, "полд": 12}
_NOON: Final = 12


def take_hour(reader: Reader) -> time | None:
    """Return the time of day that a text names, if any."""
    clock = (
        r"\b(?:в|к|до)\s+(\d{1,2})\s*(?:час(?:а|ов)?\b)?\s*"
        r"\b(утра|дня|вечера|ночи|час(?:а|ов)?)?\b"
    )
    found = re.search(clock, reader.text, re.IGNORECASE)
    is_clock = found is not None and re.search(
        r"час|утра|дня|вечера|ночи", found[0], re.IGNORECASE
    )
    if found is not None and is_clock and int(found[1]) < 24:  # noqa: PLR2004 - a day
        reader.take(clock)
        hour = int(found[1])
        is_late = (found[2] or "").lower() in {"дня", "вечера"} and hour < _NOON
        return time(hour + _NOON if is_late else hour)
    if part := reader.take(r"\b(утром|днём|днем|вечером|ночью|полдень)\b"):
        start = next(start for start in _PARTS if part[1].lower().startswith(start))
        return time(_PARTS[start])
    return None


def _ahead(found: re.Match[str], today: date) -> date:
    word, unit = (found[1] or "один").lower(), found[2].lower()
    count = int(word) if word.isdigit() else _NUMBERS[word]
    if unit.startswith("д"):
        return today + timedelta(days=count)
    if unit.startswith("нед"):
        return today + timedelta(weeks=count)
    months = count if unit.startswith("мес") else count * 12
    return in_month(*month_after(today, months), today.day)


def _named(found: re.Match[str], today: date) -> date | None:
    day, month = int(found[1]), _MONTHS.index(found[2].lower()) + 1
    if found[3] is not None:
        return valid_date(int(found[3]), month, day)
    this = valid_date(today.year, month, day)
    is_over = this is None or this < today
    return valid_date(today.year + 1, month, day) if is_over else this


def _weekday(found: re.Match[str], today: date) -> date:
    starts = enumerate(_DAYS)
    day = next((n for n, start in starts if found[2].lower().startswith(start)), 6)
    if found[1]:
        return today + timedelta(days=7 - today.weekday() + day)
    return next_weekday(today, day)


WHEN: Final[When] = (
    (rf"\b(\d{{1,2}})\s+({'|'.join(_MONTHS)})\b(?:\s+(\d{{4}})\b)?", _named),
    (r"\bпослезавтра\b", lambda _, today: today + timedelta(days=2)),
    (r"\bзавтра\b", lambda _, today: today + timedelta(days=1)),
    (r"\bсегодня\b", lambda _, today: today),
    (rf"\bчерез\s+{_COUNT}({_UNIT})\b", _ahead),
    (
        r"\bна следующей неделе\b",
        lambda _, today: today + timedelta(days=7 - today.weekday()),
    ),
    (rf"\b(?:во?|к|до)\s+(следующ\w+\s+)?{_DAY}\b", _weekday),
)
"""Patterns of days, and how to compute the date of each."""
