"""Waits for a job and shows a progress bar or its streamed text."""

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

BEGINS_ANEW = "backburner: the job started again; the text so far is no longer valid"


class Bar:
    """Shows the progress of a job on stderr."""

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
    """Wait until the job ends, with a progress bar on a terminal."""
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
    """Print a whole text and end the line."""
    for piece in pieces:
        write(piece)
    printing.write_text("\n")


def write(piece: Piece) -> None:
    """Print text as it arrives; say so if earlier text was discarded."""
    if piece.is_reset:
        printing.write_text("\n")
        printing.say(BEGINS_ANEW)
    printing.write_text(piece.text)
