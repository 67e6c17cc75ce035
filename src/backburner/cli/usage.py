"""Commands for usage and quotes."""

from typing import Annotated

import typer

from backburner.cli import jobs, printing
from backburner.cli.costs import UNKNOWN
from backburner.cli.remote import Server, remote
from backburner.shapes.usage import UsageTotal

MOST = 1_000
"""How many rows a server returns at most."""
HEADINGS = ("KEY", "JOBS", "CALLS", "INPUT", "OUTPUT", "CACHED", "COST")


@remote
def usage(
    server: Server,
    *,
    by: Annotated[
        str, typer.Option(help="Group by tag, capability, model, user, day or minute.")
    ] = "model",
    since: Annotated[
        str | None, typer.Option(help="Start: 1h, 2d or a time. Default: 30 days ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="End: 1h, 2d or a time.")] = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="All users of the tenant.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of rows; at most 1,000.")
    ] = 100,
) -> None:
    """Show the usage and cost of model calls."""
    told = server.client.usage(
        by=by,
        since=jobs.moment_of(since),
        until=jobs.moment_of(until),
        everyone=everyone or None,
        limit=min(limit, MOST),
    )
    if server.as_json:
        printing.write_json(told)
        return
    rows = [(item["key"], *_row(item)) for item in told["items"]]
    printing.write_rows(HEADINGS, [*rows, ("total", *_row(told["total"]))])
    if told["more"]:
        printing.say(f"there are more rows than --limit shows (at most {MOST:,})")


@remote
def quote(
    server: Server,
    capability: jobs.CapabilityArgument,
    text: jobs.InputArgument = None,
    *,
    file: jobs.FileOption = None,
    queue: jobs.QueueOption = None,
    priority: jobs.PriorityOption = None,
) -> None:
    """Estimate tokens, cost and end time of a job without submitting it."""
    given = jobs.input_of(text, file)
    told = server.client.quote(capability, given, queue=queue, priority=priority)
    if server.as_json:
        printing.write_json(told)
        return
    start, finish = told["start"], told["finish"]
    lines = (
        ("tokens", told["tokens"]),
        ("cost", told["cost_usd"]),
        ("jobs ahead", told["jobs_ahead"]),
        ("start p50", start and start["p50"]),
        ("start p90", start and start["p90"]),
        ("finish p50", finish and finish["p50"]),
        ("finish p90", finish and finish["p90"]),
    )
    printing.write_rows(
        ("WHAT", "VALUE"),
        ((name, UNKNOWN if value is None else value) for name, value in lines),
    )


def _row(item: UsageTotal) -> tuple[object, ...]:
    cost = item["cost_usd"]
    if cost is None:
        cost = f"{item['priced_cost_usd']}, {item['unpriced_calls']} without a price"
    return (
        item["jobs"],
        item["calls"],
        item["input_tokens"],
        item["output_tokens"],
        item["cached_tokens"],
        cost,
    )
