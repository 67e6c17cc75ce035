"""Commands for dead letters: jobs that failed permanently."""

from typing import Annotated

import typer

from backburner.cli import printing
from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect
from backburner.cli.exits import Exit, leave, refuse
from backburner.cli.jobs import IdArgument
from backburner.domain.jobs.job import JobState

app = typer.Typer(no_args_is_help=True, help="List, explain and retry failed jobs.")

HEADINGS = ("FINGERPRINT", "COUNT", "CAPABILITY", "CODE", "LAST", "SAMPLE")


@app.command("list")
def listing(
    *, as_json: JsonOption = False, url: UrlOption = None, api_key: KeyOption = None
) -> None:
    """List dead letters grouped by cause, latest first."""
    with connect(url, api_key) as client:
        groups = list(client.failures())
    if as_json:
        for group in groups:
            printing.write_json(group)
        return
    printing.write_rows(
        HEADINGS,
        (
            (
                group["fingerprint"],
                group["count"],
                group["capability"],
                group["code"],
                group["last_at"],
                group["sample_id"],
            )
            for group in groups
        ),
    )


@app.command()
def show(
    job_id: IdArgument,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Show why a job failed, attempt by attempt."""
    with connect(url, api_key) as client:
        job = client.get(job_id)
    if job["state"] != JobState.FAILED:
        leave(Exit.CONFLICT, f"job {job_id} is {job['state']}: it is no dead letter")
    if as_json:
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
def retry(
    job_id: Annotated[str | None, typer.Argument(metavar="ID")] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Retry all that match the other options.")
    ] = False,
    fingerprint: Annotated[str | None, typer.Option()] = None,
    capability: Annotated[str | None, typer.Option()] = None,
    queue: Annotated[str | None, typer.Option()] = None,
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
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Retry one dead letter, or with --all every matching one."""
    if (job_id is None) != every:
        refuse("say either one ID or --all")
    with connect(url, api_key) as client:
        if job_id is not None:
            job = client.retry(job_id)
            told, line = dict(job), job["state"]
        else:
            retried = client.retry_many(
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
    if as_json:
        printing.write_json(told)
    else:
        printing.write_line(line)
