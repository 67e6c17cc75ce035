"""
Stores the effect of a message in one transaction: tasks, record and one notification.

The parser's job may store it, or the job's completion if the job was lost. The record
ensures that only one of them does.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from backburner import Owner, Transaction
from backburner_apps.inbox import book, metrics, notifying
from backburner_apps.inbox.settings import InboxSettings
from backburner_apps.inbox.shapes import Message, Task
from backburner_apps.inbox.texts import Phrase, Shown, Voice, language_of, title_of

QUEUE: Final = "task-parsing"
AI: Final = "ai"
FALLBACK: Final = "fallback"


class Applied(NamedTuple):
    """Whether the effect of a message was stored now, and its number of tasks."""

    is_new: bool
    tasks: int = 0


class Effects:
    """Stores the effect of one message."""

    def __init__(self, settings: InboxSettings, owner: Owner, message: Message) -> None:
        self._settings = settings
        self._owner = owner
        self._message = message
        self.key = book.Key(QUEUE, message.idempotency_key)

    def parsed(self, tx: Transaction, tasks: Sequence[Task]) -> Applied:
        """Store the tasks extracted from the message, and notify the user."""
        zone = ZoneInfo(self._settings.timezone)
        new = [_new(task, zone) for task in tasks]
        if not self._close(tx, book.SUCCESS, AI, len(new)):
            return Applied(is_new=False)
        shown = self._add(tx, new, AI)
        self._notify(tx, self._voice(tx).created(shown))
        return Applied(is_new=True, tasks=len(new))

    def fallback(self, tx: Transaction, text: str, phrase: Phrase) -> Applied:
        """Store the message itself as a task, and give the user the reason `phrase`."""
        if not self._close(tx, book.FALLBACK, FALLBACK, 1):
            return Applied(is_new=False)
        voice = self._voice(tx)
        task = book.NewTask(
            title_of(text, voice),
            book.PARSE_FAILED,
            original_input=text,
            original_input_type=self._message.source_type.upper(),
        )
        [shown] = self._add(tx, [task], FALLBACK)
        self._notify(tx, voice.kept(phrase, shown))
        return Applied(is_new=True, tasks=1)

    def failed(self, tx: Transaction, code: str, phrase: Phrase) -> bool:
        """Mark the message as a dead letter, and notify the user once."""
        is_news = book.fail_record(tx, self.key, code)
        if is_news:
            self._notify(tx, self._voice(tx).say(phrase))
        return is_news

    def count(self, applied: Applied, source: str) -> None:
        """Count the tasks after their transaction has committed."""
        if applied.is_new:
            labels = (source, self._message.source_type)
            metrics.created.labels(*labels).inc(applied.tasks)

    def _close(self, tx: Transaction, status: str, source: str, count: int) -> bool:
        payload: dict[str, Any] = {"source": source, "taskCount": count}
        if book.close_record(tx, self.key, status, payload):
            return True
        # A message that did not come by the webhook has no record yet.
        correlation = self._message.correlation_id
        return book.open_record(tx, self._owner, self.key, correlation, status, payload)

    def _add(
        self, tx: Transaction, new: Sequence[book.NewTask], source: str
    ) -> list[Shown]:
        numbers = book.add_tasks(tx, self._owner, self._message, new, source=source)
        return [
            Shown(number, task.title, task.summary, task.deadline, task.steps)
            for number, task in zip(numbers, new, strict=True)
        ]

    def _voice(self, tx: Transaction) -> Voice:
        code = book.language_code(tx, self._owner)
        return Voice(language_of(code), self._settings.parse_mode)

    def _notify(self, tx: Transaction, text: str) -> None:
        notification = notifying.Notification(
            chat_id=self._message.telegram_chat_id,
            text=text,
            parse_mode=self._settings.parse_mode,
            correlation_id=self._message.correlation_id,
        )
        notifying.queue(tx, self._owner, notification)


def _new(task: Task, zone: ZoneInfo) -> book.NewTask:
    deadline = task.deadline
    if deadline is not None and deadline.tzinfo is None:
        deadline = deadline.replace(tzinfo=zone)
    return book.NewTask(
        task.title,
        summary=task.summary or None,
        deadline=None if deadline is None else deadline.isoformat(),
        project_hint=task.projectHint or None,
        steps=task.steps,
    )
