"""Commands that send signals and answers to jobs."""

from collections.abc import Sequence
from typing import Annotated, Any

import orjson
import typer

from backburner.cli import groups
from backburner.cli.asking import QUOTING
from backburner.cli.exits import refuse
from backburner.cli.groups import IdArgument
from backburner.cli.remote import Server, remote
from backburner.shapes.jobs import Question

HEADINGS = ("JOB", "NAME", "QUESTION", "CHOICES", "ASKED")
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the signal or question.")
]
ValueArgument = Annotated[
    str, typer.Argument(metavar="JSON", help="Value. Default: null.")
]


@remote
def signal(
    server: Server,
    job_id: IdArgument,
    name: NameArgument,
    value: ValueArgument = "null",
) -> None:
    """Send a signal that a job awaits with ctx.wait(NAME), now or later."""
    given = value_of(value)
    sent = server.client.signal(groups.job(job_id), name, given)
    server.write(sent, f"{sent['job_id']} {sent['name']}")


@remote
def answer(
    server: Server, job_id: IdArgument, name: NameArgument, value: ValueArgument
) -> None:
    """Answer a question that a job asks; `backburner questions` lists them."""
    given = value_of(value)
    sent = server.client.answer(groups.job(job_id), name, given)
    server.write(sent, f"{sent['job_id']} {sent['name']}")


@remote
def questions(server: Server) -> None:
    """List the questions that jobs ask people, newest first."""
    server.write_all(HEADINGS, server.client.questions(), _row)


def _row(asked: Question) -> Sequence[Any]:
    choices = ", ".join(asked["choices"] or ())
    return (
        *(asked["job_id"], asked["name"], asked["question"]),
        *(choices, asked["asked_at"]),
    )


def value_of(text: str) -> Any:
    """Parse an argument as JSON, or exit with a usage error."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        refuse(f"the value is not JSON: {error}. {QUOTING}")
