"""Parses English dates and recurrences; what is understood is removed from the text."""

import calendar
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from typing import Final

DAYS: Final = (
    *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
)
MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december"),
)
_WHOLE = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_DAY = rf"(?:{_WHOLE}|mon|tue|wed|thu|fri|sat|sun)"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|"
    r"aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_COUNT = r"(?:\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten)"
_WORDS = (
    *("a", "one", "two", "three", "four", "five"),
    *("six", "seven", "eight", "nine", "ten"),
)
_NTH = r"(\d{1,2})(?:st|[nr]d|th)?"


class Reader:
    """A text from which phrases are removed as they are understood."""

    def __init__(self, text: str) -> None:
        self.text = text

    def take(self, pattern: str) -> re.Match[str] | None:
        """Remove the first phrase that matches, with the preposition before it."""
        lead = r"(?:\b(?:on|by|at|due|before|until|from|starting|до|ко?|во?)\s+){0,2}"
        found = re.search(rf"{lead}(?:{pattern})", self.text, re.IGNORECASE)
        if found is not None:
            self.text = f"{self.text[: found.start()]} {self.text[found.end() :]}"
        return found


# --- how often -----------------------------------------------------------------------

_UNITS = {"day": "DAILY", "week": "WEEKLY", "month": "MONTHLY", "year": "YEARLY"}
_ADVERBS = {
    "daily": "DAILY",
    "weekly": "WEEKLY",
    "monthly": "MONTHLY",
    "yearly": "YEARLY",
    "annually": "YEARLY",
}


def take_recurrence(reader: Reader) -> str | None:
    """Return a recurrence as an iCalendar rule."""
    if reader.take(r"\bevery\s+(?:weekday|workday|working day)\b"):
        return "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"
    if found := reader.take(
        rf"\bevery\s+((?:{_DAY})(?:(?:\s*,\s*|\s+and\s+){_DAY})*)\b"
    ):
        named = sorted({_weekday(day) for day in re.findall(_DAY, found[1].lower())})
        return f"FREQ=WEEKLY;BYDAY={','.join(DAYS[n][:2].upper() for n in named)}"
    if found := reader.take(rf"\b(?:every|each)\s+month\s+on\s+the\s+{_NTH}\b"):
        return f"FREQ=MONTHLY;BYMONTHDAY={found[1]}"
    return _plain_recurrence(reader)


def _plain_recurrence(reader: Reader) -> str | None:
    if reader.take(r"\b(?:every|each)\s+(?:morning|evening|night)\b"):
        return "FREQ=DAILY"
    every = (
        r"\b(?:every|each)\s+(?:(other|second|\d{1,3})\s+)?(day|week|month|year)s?\b"
    )
    if found := reader.take(every):
        step = "2" if found[1] in {"other", "second"} else found[1]
        freq = f"FREQ={_UNITS[found[2].lower()]}"
        return f"{freq};INTERVAL={step}" if step and step != "1" else freq
    if found := reader.take(rf"\b({'|'.join(_ADVERBS)})\b"):
        return f"FREQ={_ADVERBS[found[1].lower()]}"
    return None


def first_time(rule: str, today: date) -> date:
    """Return the first day after today that matches a rule."""
    if found := re.search(r"BYDAY=([A-Z,]+)", rule):
        short = [day[:2].upper() for day in DAYS]
        named = {short.index(day) for day in found[1].split(",")}
        return min(next_weekday(today, day) for day in named)
    if found := re.search(r"BYMONTHDAY=(\d+)", rule):
        day = int(found[1])
        this = in_month(today.year, today.month, day)
        return this if this > today else in_month(*month_after(today, 1), day)
    return today + timedelta(days=1)


# --- when ----------------------------------------------------------------------------

_PARTS = {
    "morning": time(9),
    "noon": time(12),
    "midday": time(12),
    "afternoon": time(15),
    "evening": time(19),
    "night": time(21),
}


def take_hour(reader: Reader) -> time | None:
    """Return the time of day that the text names, if any."""
    clock = (
        r"\b(\d{1,2})(?:[:.](\d{2}))?\s*([ap])\.?m\b\.?|\b([01]?\d|2[0-3]):([0-5]\d)\b"
    )
    if found := reader.take(clock):
        if found[4] is not None:
            return time(int(found[4]), int(found[5]))
        hour, minute = int(found[1]), int(found[2] or 0)
        if 1 <= hour <= 12 and minute < 60:  # noqa: PLR2004 - a twelve-hour clock
            return time(hour % 12 + (12 if found[3].lower() == "p" else 0), minute)
    return _part(reader)


def _part(reader: Reader) -> time | None:
    if found := reader.take(r"\b(\d{1,2})\s*o'?clock\b"):
        return time(int(found[1]) % 24)
    if found := reader.take(r"\bat\s+(noon|midday|midnight)\b|\b(noon|midday)\b"):
        return _PARTS.get((found[1] or found[2]).lower(), time(0))
    if re.search(r"\btonight\b", reader.text, re.IGNORECASE):
        return _PARTS["evening"]
    part = r"(?:\bin\s+the\s+|(?<=tomorrow )|(?<=this )|(?<=day ))"
    if found := reader.take(rf"{part}(morning|afternoon|evening|night)\b"):
        return _PARTS[found[1].lower()]
    return None


When = Sequence[tuple[str, Callable[[re.Match[str], date], date | None]]]
"""Patterns of days, and how to compute the date of each."""


def take_day(reader: Reader, today: date, when: When | None = None) -> date | None:
    """Return the day that the text names, if any; English unless `when` is given."""
    for pattern, read in _WHEN if when is None else when:
        if found := re.search(pattern, reader.text, re.IGNORECASE):
            day = read(found, today)
            if day is not None:
                reader.take(pattern)
                return day
    return None


def take_span(reader: Reader, now: datetime) -> datetime | None:
    """Return a time that is given as hours or minutes from now, if any."""
    found = reader.take(rf"\bin\s+({_COUNT})\s+(hour|minute|min)s?\b")
    if found is None:
        return None
    count = _number(found[1])
    is_hours = found[2].lower() == "hour"
    return now + (timedelta(hours=count) if is_hours else timedelta(minutes=count))


def _iso(found: re.Match[str], _today: date) -> date | None:
    return valid_date(int(found[1]), int(found[2]), int(found[3]))


def _named(day: str, month: str, year: str | None, today: date) -> date | None:
    number = next(
        n for n, name in enumerate(MONTHS, 1) if name[:3] == month[:3].lower()
    )
    if year is not None:
        return valid_date(int(year), number, int(day))
    this = valid_date(today.year, number, int(day))
    is_over = this is None or this < today
    return valid_date(today.year + 1, number, int(day)) if is_over else this


def _ahead(found: re.Match[str], today: date) -> date:
    count, unit = _number(found[1]), found[2].lower()
    if unit == "day":
        return today + timedelta(days=count)
    if unit == "week":
        return today + timedelta(weeks=count)
    months = count * 12 if unit == "year" else count
    return in_month(*month_after(today, months), today.day)


def _next_unit(found: re.Match[str], today: date) -> date:
    unit = found[1].lower()
    if unit == "week":
        return today + timedelta(days=7 - today.weekday())
    if unit == "weekend":
        return next_weekday(today, 5)
    return date(*month_after(today, 12 if unit == "year" else 1), 1)


def _end_of(found: re.Match[str], today: date) -> date:
    unit = found[1].lower()
    if unit == "week":
        return today + timedelta(days=(4 - today.weekday()) % 7)
    if unit == "day":
        return today
    month = 12 if unit == "year" else today.month
    return in_month(today.year, month, 31)


def _weekday_of(found: re.Match[str], today: date) -> date:
    day, which = _weekday(found[2]), (found[1] or "").strip().lower()
    if which == "next":
        return today + timedelta(days=7 - today.weekday() + day)
    return next_weekday(today, day)


_WHEN: Final[When] = (
    (r"\b(\d{4})-(\d{2})-(\d{2})\b", _iso),
    (
        r"\b(\d{1,2})\.(\d{1,2})\.(\d{4})\b",
        lambda f, _: valid_date(*map(int, (f[3], f[2], f[1]))),
    ),
    (
        rf"\b(?:the\s+)?{_NTH}\s+(?:of\s+)?({_MONTH})\b\.?(?:,?\s+(\d{{4}})\b)?",
        lambda f, today: _named(f[1], f[2], f[3], today),
    ),
    (
        rf"\b({_MONTH})\.?\s+(?:the\s+)?{_NTH}\b(?:,?\s+(\d{{4}})\b)?",
        lambda f, today: _named(f[2], f[1], f[3], today),
    ),
    (r"\b(?:the\s+)?day after tomorrow\b", lambda _, today: today + timedelta(days=2)),
    (r"\btomorrow\b", lambda _, today: today + timedelta(days=1)),
    (
        r"\b(?:later\s+)?(?:today|tonight)\b|\bthis (?:morning|afternoon|evening)\b",
        lambda _, t: t,
    ),
    (rf"\b(?:in|within)\s+({_COUNT})\s+(day|week|month|year)s?\b", _ahead),
    (r"\b(?:the\s+)?end of (?:the\s+|this\s+)?(day|week|month|year)\b", _end_of),
    (r"\bnext\s+(week|month|year|weekend)\b", _next_unit),
    (rf"\b(next\s+|this\s+|coming\s+)?({_WHOLE})\b", _weekday_of),
    # Short names are words, too, unless a preposition shows that a day is meant.
    (rf"\b(next\s+|this\s+|on\s+|by\s+)({_DAY})\b", _weekday_of),
)


def valid_date(year: int, month: int, day: int) -> date | None:
    """Return a date; `None` if it does not exist."""
    try:
        return date(year, month, day)
    except ValueError:
        return None


def in_month(year: int, month: int, day: int) -> date:
    """Return a day of a month, or its last one if that is earlier."""
    return date(year, month, min(day, calendar.monthrange(year, month)[1]))


def month_after(day: date, months: int) -> tuple[int, int]:
    """Return the year and the month that is some months later."""
    count = day.year * 12 + day.month - 1 + months
    return min(count // 12, 9999), count % 12 + 1


def next_weekday(today: date, weekday: int) -> date:
    """Return the next date after today with this day of the week."""
    return today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1)


def _weekday(name: str) -> int:
    return next(n for n, day in enumerate(DAYS) if day[:3] == name.lower()[:3])


def _number(word: str) -> int:
    word = "a" if word.lower() == "an" else word.lower()
    return int(word) if word.isdigit() else max(1, _WORDS.index(word))
