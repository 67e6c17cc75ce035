"""The texts of the bot's replies, in English and Russian."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple

from backburner_apps.inbox.markup import bold, escape
from backburner_apps.inbox.settings import ParseMode

Language = Literal["en", "ru"]
Phrase = Literal[
    "created",
    "created_several",
    "fallback",
    "error",
    "saved",
    "voice_off",
    "voice",
    "start",
    "help",
    "open",
    "more",
    "empty",
    "done",
    "done_before",
    "unknown",
    "usage",
]
FALLBACK: Final[Phrase] = "fallback"
ERROR: Final[Phrase] = "error"
VOICE_OFF: Final[Phrase] = "voice_off"
SHOWN: Final = 50
"""Maximum number of tasks that `/tasks` lists."""

_EN: Final[Mapping[Phrase, str]] = {
    "created": "✅ Task created",
    "created_several": "✅ Tasks created: {count}",
    "fallback": "⚠️ I could not work out tasks from your message.",
    "error": "❌ Something went wrong and your message could not be processed.",
    "saved": "I saved it unchanged as a task:",
    "voice_off": "🎤 Voice messages are not enabled here. Please send a text.",
    "voice": "Voice message",
    "start": "👋 Hello! Send me a message and I will turn it into tasks.",
    "help": "Send a text or a voice message, for example: Buy milk tomorrow.\n"
    "/tasks – your open tasks\n/done N – mark task N as done\n/help – this text",
    "open": "📋 Open tasks",
    "more": "… and {count} more",
    "empty": "🎉 You have no open tasks.",
    "done": "✅ Done",
    "done_before": "This task is done already",
    "unknown": "There is no task {number}. /tasks lists your open tasks.",
    "usage": "Write the number of a task, for example: /done 3",
}
_RU: Final[Mapping[Phrase, str]] = {
    "created": "✅ Задача создана",
    "created_several": "✅ Создано задач: {count}",
    "fallback": "⚠️ Не удалось понять, какие задачи в вашем сообщении.",
    "error": "❌ Что-то пошло не так: сообщение не удалось обработать.",
    "saved": "Я сохранил его без изменений как задачу:",
    "voice_off": "🎤 Голосовые сообщения здесь не включены. "
    "Отправьте, пожалуйста, текст.",
    "voice": "Голосовое сообщение",
    "start": "👋 Здравствуйте! Отправьте сообщение, и я превращу его в задачи.",
    "help": "Отправьте текст или голосовое сообщение, например: Купить молоко завтра.\n"
    "/tasks – открытые задачи\n/done N – отметить задачу N как выполненную\n"
    "/help – эта справка",
    "open": "📋 Открытые задачи",
    "more": "… и ещё {count}",
    "empty": "🎉 Открытых задач нет.",
    "done": "✅ Выполнено",
    "done_before": "Эта задача уже выполнена",
    "unknown": "Задачи {number} нет. /tasks покажет открытые задачи.",
    "usage": "Напишите номер задачи, например: /done 3",
}
_PHRASES: Final[Mapping[Language, Mapping[Phrase, str]]] = {"en": _EN, "ru": _RU}
_TIMES: Final[Mapping[Language, str]] = {"en": "%Y-%m-%d %H:%M", "ru": "%d.%m.%Y %H:%M"}


class Shown(NamedTuple):
    """A task as a reply shows it."""

    number: int
    title: str
    summary: str | None = None
    deadline: str | None = None
    steps: Sequence[str] = ()


class Voice(NamedTuple):
    """Writes replies in a user's language and the parse mode."""

    language: Language
    mode: ParseMode

    def say(self, phrase: Phrase, **values: object) -> str:
        """Return a phrase; the values for its placeholders are numbers."""
        return escape(_PHRASES[self.language][phrase].format(**values), self.mode)

    def created(self, tasks: Sequence[Shown]) -> str:
        """Return the reply that lists new tasks."""
        several = len(tasks) > 1
        head = (
            self.say("created_several", count=len(tasks))
            if several
            else self.say("created")
        )
        return "\n\n".join([head, *map(self._whole, tasks)])

    def kept(self, phrase: Phrase, task: Shown) -> str:
        """Return the reply for a message that is stored unchanged, with the reason."""
        lines = [self.say(phrase), self.say("saved"), "", self._line(task)]
        return "\n".join(lines)

    def listed(self, tasks: Sequence[Shown], total: int) -> str:
        """Return the list of open tasks."""
        if not tasks:
            return self.say("empty")
        lines = [self.say("open"), "", *map(self._line, tasks)]
        hidden = total - len(tasks)
        return "\n".join(
            [*lines, *([self.say("more", count=hidden)] if hidden else [])]
        )

    def done(self, phrase: Phrase, task: Shown) -> str:
        """Return the reply for a task that is done."""
        return f"{self.say(phrase)}: {self._line(task)}"

    def _line(self, task: Shown) -> str:
        when = "" if task.deadline is None else f" ⏰ {self._time(task.deadline)}"
        return f"{task.number}. {bold(task.title, self.mode)}{when}"

    def _whole(self, task: Shown) -> str:
        summary = [] if not task.summary else [escape(task.summary, self.mode)]
        steps = (f"• {escape(step, self.mode)}" for step in task.steps)
        return "\n".join([self._line(task), *summary, *steps])

    def _time(self, deadline: str) -> str:
        text = datetime.fromisoformat(deadline).strftime(_TIMES[self.language])
        return escape(text, self.mode)


def language_of(code: str | None) -> Language:
    """Return Russian for an IETF tag such as `ru-RU`, otherwise English."""
    return "ru" if (code or "").lower().partition("-")[0] == "ru" else "en"


def title_of(text: str, voice: Voice, longest: int = 500) -> str:
    """Return the title of the task for a message that could not be parsed."""
    line = " ".join(text.split())
    return line[:longest] or _PHRASES[voice.language]["voice"]
