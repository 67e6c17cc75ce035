"""Commands for batches: groups of jobs and flows."""

from collections.abc import Sequence
from typing import Any, Final

import typer

from backburner.cli import groups, printing
from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect
from backburner.cli.groups import IdArgument, LimitOption, StateOption, TagOption
from backburner.client import Batch

app = typer.Typer(no_args_is_help=True, help="List, cancel and retry batches.")

HEADINGS: Final = ("ID", "STATE", "DONE", "EXPECTED", "TAGS", "CREATED", "FINISHED")


@app.command("list")
def listing(
    *,
    state: StateOption = None,
    tag: TagOption = None,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """List batches, newest first."""
    with connect(url, api_key) as client:
        found = client.batches(state=state, tag=tag, limit=min(limit, groups.PAGE))
        groups.write_rows(HEADINGS, found, _row, limit=limit, as_json=as_json)


@app.command()
def show(
    batch_id: IdArgument,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Show how many members and jobs of a batch are in each state."""
    with connect(url, api_key) as client:
        batch = client.get_batch(batch_id)
    if as_json:
        printing.write_json(batch)
        return
    counts = batch["counts"]
    members = counts["members"] if counts else {}
    jobs = counts["jobs"] if counts else {}
    printing.write_rows(
        ("STATE", "MEMBERS", "JOBS"),
        (
            (state, members.get(state, 0), jobs.get(state, 0))
            for state in sorted({*members, *jobs})
        ),
    )
    printing.say(f"{batch['id']} {batch['state']}: {_progress(batch)}")


@app.command()
def cancel(
    batch_id: IdArgument,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Cancel all unfinished jobs of a batch and close it."""
    with connect(url, api_key) as client:
        groups.write_state(client.cancel_batch(batch_id), as_json=as_json)


@app.command()
def retry(
    batch_id: IdArgument,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Retry the failed members of a batch."""
    with connect(url, api_key) as client:
        batch = client.retry_batch(batch_id)
    if as_json:
        printing.write_json(batch)
    else:
        printing.write_line(f"{batch.get('retried', 0)} queued again")


def _row(batch: Batch) -> Sequence[Any]:
    return (
        batch["id"],
        batch["state"],
        batch["done"],
        batch["expected"],
        ",".join(batch["tags"]),
        batch["created_at"],
        batch["finished_at"],
    )


def _progress(batch: Batch) -> str:
    counts = batch["counts"]
    total = batch["expected"] or (counts["total"] if counts else 0)
    more = "" if batch["sealed"] or batch["expected"] else ", more may come"
    return f"{batch['done']} of {total} done{more}"
