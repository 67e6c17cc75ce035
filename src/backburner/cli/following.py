"""Waiting for a job before a person: a bar while it works, its text as it comes."""

from collections.abc import Iterable
from typing import cast

from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
)

from backburner.cli import printing
from backburner.client import Client, Job, Piece, Text
from backburner.client import Progress as Told

BEGINS_ANEW = "backburner: the job begins anew; drop the text so far"


class Bar:
    """How far a job is, on stderr."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        self.shown = Progress(*columns, console=printing.words, transient=True)
        self._task: TaskID = self.shown.add_task("waiting", total=None)

    def show(self, state: str, told: Told | None) -> None:
        """Show a state, or the message of its progress."""
        message = told.get("message") if told else None
        self.shown.update(
            self._task,
            description=printing.clean(message or state),
            completed=told["done"] if told else 0,
            total=told["total"] if told else None,
        )


def follow(client: Client, job_id: str, timeout: float | None) -> Job:
    """Wait for the end, with a bar if somebody looks on."""
    if not printing.words.is_terminal:
        return client.wait(job_id, timeout=timeout)
    bar = Bar()
    with bar.shown:
        for job in client.follow(job_id, timeout=timeout, every=1):
            bar.show(job["state"], job["progress"])
    return job


def attend(client: Client, job_id: str) -> tuple[Job, str]:
    """
    Show a bar until the job streams text, then the text; return the job and the text.

    After the first piece no bar is drawn again: a bar erases the line that it is on.
    """
    text, bar = Text(), Bar()
    with bar.shown:
        for event in client.events(job_id):
            kind, data = event["type"], event["data"]
            piece = text.take(event["n"], kind, data)
            if piece is not None:
                bar.shown.stop()
                write(piece)
            elif kind == "job.progress":
                bar.show("running", cast("Told", data))
            else:
                bar.show(kind.removeprefix("job."), None)
    return client.wait(job_id), str(text)


def write_all(pieces: Iterable[Piece]) -> None:
    """Write a text to its end, which is the end of a line."""
    for piece in pieces:
        write(piece)
    printing.write_text("\n")


def write(piece: Piece) -> None:
    """Write text as it comes; say so if what came before is void."""
    if piece.is_reset:
        printing.write_text("\n")
        printing.say(BEGINS_ANEW)
    printing.write_text(piece.text)
