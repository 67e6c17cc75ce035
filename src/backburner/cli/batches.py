"""Commands for batches: groups of jobs and flows."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

import typer

from backburner.cli import groups, printing
from backburner.cli.groups import IdArgument, LimitOption, StateOption, TagOption
from backburner.cli.remote import Server, lists, remote
from backburner.client import Batch

app = typer.Typer(help="List, cancel and retry batches.")

HEADINGS: Final = ("ID", "STATE", "DONE", "EXPECTED", "TAGS", "CREATED", "FINISHED")


@lists(app)
@remote
def listing(
    server: Server,
    *,
    state: StateOption = None,
    tag: TagOption = None,
    limit: LimitOption = 50,
) -> None:
    """List batches, newest first."""
    found = server.client.batches(state=state, tag=tag, limit=min(limit, groups.PAGE))
    server.write_all(HEADINGS, islice(found, limit), _row)


@app.command()
@remote
def show(server: Server, batch_id: IdArgument) -> None:
    """Show how many members and jobs of a batch are in each state."""
    batch = server.client.get_batch(batch_id)
    if server.as_json:
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
@remote
def cancel(server: Server, batch_id: IdArgument) -> None:
    """Cancel all unfinished jobs of a batch and close it."""
    seen = server.client.cancel_batch(batch_id)
    server.write(seen, groups.state_of(seen))


@app.command()
@remote
def retry(server: Server, batch_id: IdArgument) -> None:
    """Retry the failed members of a batch."""
    batch = server.client.retry_batch(batch_id)
    server.write(batch, f"{batch.get('retried', 0)} queued again")


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
    more = "" if batch["sealed"] or batch["expected"] else ", more may be added"
    return f"{batch['done']} of {total} done{more}"
