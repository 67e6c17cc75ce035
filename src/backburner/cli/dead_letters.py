"""Commands for dead letters: jobs that failed permanently."""

from operator import itemgetter
from typing import Annotated

import typer

from backburner.cli import printing
from backburner.cli.exits import Exit, leave, refuse
from backburner.cli.remote import Server, lists, remote
from backburner.client import Client
from backburner.domain.jobs.job import JobState

app = typer.Typer(help="List, explain and retry failed jobs.")

FIELDS = itemgetter(
    *("fingerprint", "count", "capability", "code", "last_at", "sample_id")
)
HEADINGS = ("FINGERPRINT", "COUNT", "CAPABILITY", "CODE", "LAST", "SAMPLE")


@lists(app)
@remote
def listing(server: Server) -> None:
    """List dead letters grouped by cause, latest first."""
    server.write_all(HEADINGS, server.client.failures(), FIELDS)


@app.command()
@remote
def show(
    server: Server,
    job_id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Id of a job, or a fingerprint, as `list` prints it."
        ),
    ],
) -> None:
    """Show why a job failed, with its attempts. A fingerprint means its newest job."""
    job = server.client.get(_sample(server.client, job_id))
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
        int | None, typer.Option(min=1, help="Retry only N of them, as a test.")
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
        if not _is_job(job_id):
            refuse(
                f"{job_id} is not the id of a job; to retry all jobs with this "
                f"fingerprint: `backburner dead-letters retry --all --fingerprint "
                f"{job_id}`"
            )
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
        if dry_run:
            count = retried["matched"]
            line = f"{count} {'matches' if count == 1 else 'match'}; nothing was queued"
    server.write(told, line)


def _is_job(name: str) -> bool:
    return name.startswith("job_")


def _sample(client: Client, name: str) -> str:
    """Return the id of a job; for a fingerprint, that of its newest job."""
    if _is_job(name):
        return name
    samples = {one["fingerprint"]: one["sample_id"] for one in client.failures()}
    if name not in samples:
        leave(
            Exit.NOT_FOUND,
            f"{name} is neither the id of a job nor the fingerprint of a dead letter: "
            "`backburner dead-letters list` shows both",
        )
    return samples[name]
