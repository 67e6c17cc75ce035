"""
Parses English and Russian sentences about things to do, without a model.

Used by the mock. It knows common wordings for dates, recurrence, urgency and steps; the
remaining text is the title.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import Final

from backburner.ai import russian
from backburner.ai.when import (
    Reader,
    first_time,
    take_day,
    take_hour,
    take_recurrence,
    take_span,
)

LONGEST_TITLE: Final = 200
MOST_TASKS: Final = 5
MOST_STEPS: Final = 20


@dataclass
class Task:
    """A thing to do, as parsed from a sentence."""

    title: str = ""
    description: str | None = None
    day: date | None = None
    hour: time | None = None
    priority: str = "medium"
    category: str | None = None
    recurrence: str | None = None
    """An iCalendar rule: `FREQ=WEEKLY;BYDAY=MO`."""
    steps: list[str] = field(default_factory=list)


def task_of(text: str, now: datetime) -> Task:
    """Parse a sentence; `now` is the time, with its zone, at which it was written."""
    task = Task()
    head, task.steps = _steps(text)
    reader = Reader(head)
    task.recurrence = take_recurrence(reader)
    task.hour = take_hour(reader) or russian.take_hour(reader)
    task.day = _day(reader, now.date()) or _among(task.steps, now.date())
    if task.day is None:
        at = take_span(reader, now)
        if at is not None:
            task.day, task.hour = at.date(), at.time().replace(second=0, microsecond=0)
    if task.day is None and task.recurrence is not None:
        task.day = first_time(task.recurrence, now.date())
    if task.day is None and task.hour is not None:
        later = task.hour > now.time()
        task.day = now.date() if later else now.date() + timedelta(days=1)
    task.priority = _priority(reader)
    task.category = _category(reader)
    task.title, task.description = _title(reader.text, text)
    return task


def tasks_of(text: str, now: datetime) -> list[Task]:
    """
    Parse a message as one or more tasks.

    A list without a heading, several lines or several sentences are several tasks; a
    list with a heading is one task with steps.
    """
    lines = [line for line in text.strip().splitlines() if line.strip()]
    bullets = [found[1] for line in lines if (found := _BULLET.match(line))]
    if bullets and len(bullets) < len(lines):
        parts = [text]
    elif bullets or len(lines) > 1:
        parts = bullets or lines
    else:
        parts = _SENTENCE.split(text.strip())
    return [task_of(part, now) for part in parts[:MOST_TASKS]]


def _day(reader: Reader, today: date) -> date | None:
    return take_day(reader, today) or take_day(reader, today, russian.WHEN)


# --- steps ---------------------------------------------------------------------------

_BULLET = re.compile(r"^\s*(?:[-*\u2022]|\d{1,2}[.)])\s+(.+)$")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+(?=[A-ZА-ЯЁ])")
_FIRST = re.compile(r"\b(?:first(?:ly)?|сначала),?\s+(.+)$", re.IGNORECASE | re.DOTALL)
_THEN = re.compile(
    r"[,;.]?\s*\b(?:(?:and\s+|[аи]\s+)?(?:then|after that|finally|lastly|"
    r"потом|затем|после этого|наконец))\b,?\s*",
    re.IGNORECASE,
)
_COLON = re.compile(r"^([^:\n]{2,200}):\s+(\S.*)$", re.DOTALL)
_ITEMS = re.compile(r"\s*[,;\n]\s*(?:(?:and|и)\s+)?|\s+(?:and|и)\s+")


def _steps(text: str) -> tuple[str, list[str]]:
    """Split a text into the part without steps, and the steps."""
    lines = text.strip().splitlines()
    bullets = [found.group(1) for line in lines if (found := _BULLET.match(line))]
    if bullets:
        rest = [line for line in lines if not _BULLET.match(line)]
        return " ".join(rest).strip().rstrip(":") or bullets[0], _clean(bullets)
    first = _FIRST.search(text)
    if first is not None and _THEN.search(first.group(1)):
        steps = _clean(_THEN.split(first.group(1)))
        return text[: first.start()].strip(" :,") or steps[0], steps
    colon = _COLON.match(text.strip())
    if colon is not None and not re.fullmatch(
        r"(?i)(to-?do|task|note|задача|дело)", colon[1]
    ):
        return colon.group(1), _clean(_ITEMS.split(colon.group(2)))
    return text, []


def _clean(steps: Sequence[str]) -> list[str]:
    tidied = [_capital(step.strip(" \t.,;")) for step in steps]
    return [step[:LONGEST_TITLE] for step in tidied if step][:MOST_STEPS]


def _among(steps: list[str], today: date) -> date | None:
    """Remove the date from the steps; it applies to all of them."""
    for n, step in enumerate(steps):
        reader = Reader(step)
        day = _day(reader, today)
        if day is not None:
            steps[n] = reader.text.strip() or step
            return day
    return None


# --- how urgent, and what for --------------------------------------------------------

_PRIORITIES = (
    (
        r"\b(?:urgent(?:ly)?|a\.?s\.?a\.?p\b\.?|critical|right away|срочно)\b|!{3,}",
        "urgent",
    ),
    (r"\blow(?:est)?[ -]priority\b|\bno rush\b|\bwhenever\b|\bsome ?day\b", "low"),
    (r"\bhigh(?:est)?[ -]priority\b|\b(?:(?:very\s+)?important|важно)\b|!!", "high"),
    (r"\b(?:medium|normal)[ -]priority\b", "medium"),
)
_CATEGORIES = {
    "shopping": r"\b(?:buy|groceries|shop(?:ping)?|order)\b",
    "health": r"\b(?:doctor|dentist|gym|run|medicine|pills|vet)\b",
    "finance": r"\b(?:pay|bills?|invoices?|rent|tax(?:es)?|bank)\b",
    "work": r"\b(?:report|meeting|client|slides|presentation|deploy|release|review)\b",
    "home": r"\b(?:clean|laundry|dishes|garden|plants|trash|cook|fix)\b",
    "social": r"\b(?:mum|mom|dad|birthday|party|friends?|dinner)\b",
}


def _priority(reader: Reader) -> str:
    found = [level for pattern, level in _PRIORITIES if reader.take(pattern)]
    return found[0] if found else "medium"


def _category(reader: Reader) -> str | None:
    if found := reader.take(r"(?<!\S)#([\w-]{1,50})"):
        return found[1].lower()
    matched = (
        n for n, p in _CATEGORIES.items() if re.search(p, reader.text, re.IGNORECASE)
    )
    return next(matched, None)


# --- what is left --------------------------------------------------------------------

_POLITE = re.compile(
    r"^(?:please|hey|hi|ok(?:ay)?|remind me to|remember to|don'?t forget to|"
    r"(?:i|we) (?:need to|have to|want to|must|should)|can you|could you|"
    r"add (?:a )?task (?:to|for)?|to-?do|task|note|пожалуйста|напомни(?: мне)?|"
    r"(?:мне )?(?:надо|нужно)|не забыть|не забудь|задача)\b[\s:,]*",
    re.IGNORECASE,
)
_LOOSE = re.compile(
    r"[\s,;:.()-]+$|\s+(?:on|by|at|due|before|for|and|it(?:'s| is)|this is|in the)$",
    re.IGNORECASE,
)


def _title(left: str, original: str) -> tuple[str, str | None]:
    text = re.sub(r"\s+", " ", left).strip(" ,;:.-")
    while (shorter := _LOOSE.sub("", _POLITE.sub("", text))) != text:
        text = shorter
    text = re.sub(r"\s+([,.;!?])", r"\1", text).strip(" ,;:!")
    if not text:
        text = re.sub(r"\s+", " ", original).strip() or "Untitled"
    first, _, rest = text.partition(". ")
    title, more = (first, rest) if rest else (text, "")
    if len(title) > LONGEST_TITLE:
        title, more = f"{title[: LONGEST_TITLE - 1]}\u2026", original.strip()
    return _capital(title), more.strip() or None


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
