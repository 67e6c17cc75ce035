"""Commands for dead letters: jobs that failed permanently."""

from operator import itemgetter
from typing import Annotated

import typer

from backburner.cli import printing
from backburner.cli.exits import Exit, leave, refuse
from backburner.cli.groups import IdArgument
from backburner.cli.remote import Server, remote
from backburner.domain.jobs.job import JobState

app = typer.Typer(no_args_is_help=True, help="List, explain and retry failed jobs.")

FIELDS = itemgetter(
    *("fingerprint", "count", "capability", "code", "last_at", "sample_id")
)
HEADINGS = ("FINGERPRINT", "COUNT", "CAPABILITY", "CODE", "LAST", "SAMPLE")


@app.command("list")
@remote
def listing(server: Server) -> None:
    """List dead letters grouped by cause, latest first."""
    server.write_all(HEADINGS, server.client.failures(), FIELDS)


@app.command()
@remote
def show(server: Server, job_id: IdArgument) -> None:
    """Show why a job failed, attempt by attempt."""
    job = server.client.get(job_id)
    if job["state"] != JobState.FAILED:
        leave(
            Exit.CONFLICT,
            f"job {job_id} is {job['state']}: only failed jobs are dead letters",
        )
    if server.as_json:
        printing.write_json(job)
        return
    error = job["error"]
    printing.write_line(f"{job['id']}  {job['capability']}  {job['finished_at']}")
    if error is not None:
        printing.write_line(f"{error['code']}: {error['message']}")
    printing.write_rows(
        ("GENERATION", "ATTEMPT", "WORKER", "STARTED", "OUTCOME", "ERROR"),
        (
            (
                attempt["generation"],
                attempt["number"],
                attempt["worker"],
                attempt["started_at"],
                attempt["outcome"],
                (attempt["error"] or {}).get("code"),
            )
            for attempt in job.get("attempts", ())
        ),
    )
    printing.write_trace(job)


@app.command()
@remote
def retry(
    server: Server,
    job_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Id of a failed job.")
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Retry all that match the other options.")
    ] = False,
    fingerprint: Annotated[
        str | None, typer.Option(help="Only this cause, as `list` prints it.")
    ] = None,
    capability: Annotated[
        str | None, typer.Option(help="Only jobs of this capability.")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Only jobs of this queue.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the newest N.")] = None,
    canary: Annotated[
        int | None, typer.Option(min=1, help="Start only N of them now.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.01, help="Retries per second; the rest wait.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the matching jobs.")
    ] = False,
) -> None:
    """Retry one dead letter, or with --all every matching one."""
    if (job_id is None) != every:
        refuse("give either one ID or --all")
    if job_id is not None:
        job = server.client.retry(job_id)
        told, line = dict(job), job["state"]
    else:
        retried = server.client.retry_many(
            fingerprint=fingerprint,
            capability=capability,
            queue=queue,
            limit=limit,
            canary=canary,
            rate=rate,
            dry_run=dry_run,
        )
        told = dict(retried)
        line = f"{retried['retried']} of {retried['matched']} queued again"
    server.write(told, line)
