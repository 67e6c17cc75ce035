"""The commands of the bot: `/start`, `/help`, `/tasks` and `/done N`."""

import re
from typing import Any, Final, NamedTuple

from backburner import Owner, Transaction
from backburner_apps.inbox import book
from backburner_apps.inbox.texts import SHOWN, Shown, Voice

_COMMAND: Final = re.compile(r"/([A-Za-z]\w{0,31})(?:@\w+)?(?:\s+(.*))?", re.DOTALL)
_NUMBER: Final = re.compile(r"\d{1,9}")


class Command(NamedTuple):
    """A message that is a command."""

    name: str
    argument: str


def command_of(text: str) -> Command | None:
    """Return a message's command, such as `/done 3` or `/tasks@a_bot`, or `None`."""
    match = _COMMAND.fullmatch(text.strip())
    return None if match is None else Command(match[1].lower(), match[2] or "")


def run(tx: Transaction, owner: Owner, command: Command, voice: Voice) -> str:
    """Run a command; return the text of the answer."""
    match command.name:
        case "start":
            return f"{voice.say('start')}\n\n{voice.say('help')}"
        case "tasks":
            rows, total = book.open_tasks(tx, owner, SHOWN)
            return voice.listed([_shown(row) for row in rows], total)
        case "done":
            return _done(tx, owner, command.argument, voice)
        case _:
            return voice.say("help")


def _done(tx: Transaction, owner: Owner, argument: str, voice: Voice) -> str:
    if not _NUMBER.fullmatch(argument.strip()):
        return voice.say("usage")
    number = int(argument)
    row, was_open = book.finish_task(tx, owner, number)
    if row is None:
        return voice.say("unknown", number=number)
    return voice.done("done" if was_open else "done_before", _shown(row))


def _shown(row: Any) -> Shown:
    return Shown(row.number, row.title, deadline=row.deadline)
