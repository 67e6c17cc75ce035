"""The commands that tell jobs what they wait for."""

from typing import Annotated, Any

import orjson
import typer

from backburner.cli import groups, printing
from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect
from backburner.cli.exits import refuse
from backburner.shapes.jobs import Signal

HEADINGS = ("JOB", "NAME", "QUESTION", "CHOICES", "ASKED")
IdArgument = Annotated[str, typer.Argument(metavar="ID")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME")]
ValueArgument = Annotated[
    str, typer.Argument(metavar="JSON", help="The value; null if it is left out.")
]


def signal(
    job_id: IdArgument,
    name: NameArgument,
    value: ValueArgument = "null",
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Send a signal to a job that waits for it by ctx.wait(NAME), or will."""
    given = value_of(value)
    with connect(url, api_key) as client:
        _write(client.signal(groups.job(job_id), name, given), as_json=as_json)


def answer(
    job_id: IdArgument,
    name: NameArgument,
    value: ValueArgument,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Answer a question that a job asks; `backburner questions` lists them."""
    given = value_of(value)
    with connect(url, api_key) as client:
        _write(client.answer(groups.job(job_id), name, given), as_json=as_json)


def questions(
    *, as_json: JsonOption = False, url: UrlOption = None, api_key: KeyOption = None
) -> None:
    """List the questions that jobs ask people, newest first."""
    with connect(url, api_key) as client:
        found = client.questions()
    if as_json:
        for question in found:
            printing.write_json(question)
        return
    rows = (
        (
            asked["job_id"],
            asked["name"],
            asked["question"],
            ", ".join(asked["choices"] or ()),
            asked["asked_at"],
        )
        for asked in found
    )
    printing.write_rows(HEADINGS, rows)


def _write(told: Signal, *, as_json: bool) -> None:
    if as_json:
        printing.write_json(told)
    else:
        printing.write_line(f"{told['job_id']} {told['name']}")


def value_of(text: str) -> Any:
    """Return JSON that was given as an argument; leave with a usage error if none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        refuse(f"the value is not JSON: {error}. Quote a text: '\"yes\"'")
