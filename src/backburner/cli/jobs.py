"""Commands for jobs. Each calls the server and prints its answer."""

import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from backburner.cli import costs, event_lines, following, groups, printing
from backburner.cli.asking import (
    JsonOption,
    KeyOption,
    UrlOption,
    connect,
    moment,
    now,
    read_json,
    span,
)
from backburner.cli.exits import Exit, leave, refuse
from backburner.client import Client, Job, is_final
from backburner.client.options import SAME_INPUT
from backburner.domain.jobs.job import JobState

IdArgument = Annotated[str, typer.Argument(metavar="ID")]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", min=0, help="Stop waiting after this time; exit 8."
    ),
]

HEADINGS = (
    *("ID", "STATE", "CAPABILITY", "QUEUE", "ATTEMPT", "PROGRESS", "CREATED"),
    *("TOKENS", "COST", "STEP", "FLOW"),
)


STEP_HEADINGS = ("NAME", "KIND", "STATE", "RUN", "SIZE", "STORED")


def submit(
    capability: Annotated[str, typer.Argument(metavar="CAPABILITY")],
    text: Annotated[
        str | None,
        typer.Argument(metavar="INPUT|-", help="Input as JSON; - reads stdin."),
    ] = None,
    *,
    file: Annotated[
        Path | None, typer.Option(help="Read the input from this file.", metavar="FILE")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it ends and print the result.")
    ] = False,
    timeout: TimeoutOption = None,
    queue: Annotated[
        str | None, typer.Option(help="Queue, if not the default.")
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(help="Priority, 0 to 9; higher runs first.", metavar="N"),
    ] = None,
    run_at: Annotated[
        str | None, typer.Option(help="Start time: 2030-01-31T09:00:00Z.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(help="Delay before it starts: 30s, 5m, 2h, 1d.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Tag to filter by. Can be repeated.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="Expected number of tokens.", metavar="N")
    ] = None,
    share: Annotated[
        str | None, typer.Option(help="Fair share to use. Default: the user's.")
    ] = None,
    completion: Annotated[
        str | None,
        typer.Option(
            help='Job to submit when this one ends: {"capability": …, "input": …}.',
            metavar="JSON",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: a repeat returns the same job.")
    ] = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Submit a job and print its id, or its result with --wait."""
    if key is not None and delay is not None:
        refuse("with --key say --run-at: a repeat must be the same")
    with connect(url, api_key) as client:
        job = client.submit(
            capability,
            input_of(text, file),
            key=key,
            queue=queue,
            priority=priority,
            run_at=_run_at(run_at, delay),
            tags=tag or None,
            tokens=tokens,
            share=share,
            completion=_completion(completion),
        ).job
        is_live = wait and timeout is None and not as_json and sys.stdout.isatty()
        streamed = ""
        if is_live:
            job, streamed = _attend(client, job["id"])
        elif wait:
            job = _wait(client, job["id"], timeout)
    if as_json:
        printing.write_json(job)
    elif not wait:
        printing.write_line(job["id"])
    else:
        _write_result(job, streamed)
    if wait:
        _leave_by(job)


def status(
    ids: Annotated[list[str], typer.Argument(metavar="ID…")],
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Show the state of jobs."""
    with connect(url, api_key) as client:
        found = [client.get(groups.job(one)) for one in ids]
    _show(iter(found), as_json=as_json)
    if not as_json:
        for job in found:
            printing.write_trace(job)


def wait(
    job_id: IdArgument,
    *,
    timeout: TimeoutOption = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """
    Wait until a job, flow or batch has ended and print its state.

    Exits with 1 unless all of it succeeded.
    """
    with connect(url, api_key) as client:
        if groups.is_group(job_id):
            seen = groups.wait(client, job_id, timeout)
            groups.write_state(seen, as_json=as_json)
            groups.leave_by(seen)
            return
        job = _wait(client, job_id, timeout)
    groups.write_state(job, as_json=as_json)
    _leave_by(job)


def watch(
    job_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Job, flow or batch. Default: all."),
    ] = None,
    *,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Start after this event number. Default: now."),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(help="Only events of applications with this topic."),
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Print only the streamed text.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """
    Print events as they happen.

    Follows one job, flow or batch until it ends, or all events, or one topic.
    """
    if job_id is not None and (after is not None or topic is not None):
        refuse("give either an ID, or --after and --topic")
    if text and (job_id is None or as_json):
        refuse("--text needs an ID and cannot be combined with --json")
    with connect(url, api_key) as client:
        if text and job_id is not None:
            following.write_all(client.pieces(job_id))
            _leave_by(client.get(job_id))
            return
        if job_id is None:
            events = client.all_events(after=after, topic=topic)
            event_lines.write_events(events, as_json=as_json, with_subject=True)
            return
        if groups.is_group(job_id):
            groups.leave_by(groups.watch(client, job_id, as_json=as_json))
            return
        event_lines.write_events(client.events(job_id), as_json=as_json)
        _leave_by(client.get(job_id))


def result(
    job_id: IdArgument,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Print the result of a job; exit with 1 if it did not succeed."""
    with connect(url, api_key) as client:
        job = client.get(groups.job(job_id))
    if not is_final(job):
        leave(
            Exit.CONFLICT,
            f"job {job_id} is {job['state']}: wait for it with `backburner wait`",
        )
    if job["state"] == JobState.SUCCEEDED:
        output = job.get("output")
        printing.write_json(output) if as_json else printing.write_value(output)
    _leave_by(job)


def cancel(
    job_id: IdArgument,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """
    End a job now, whatever it is doing; asking twice is no error.

    What it had used, and what cannot be undone, is told beside.
    """
    with connect(url, api_key) as client:
        job = client.cancel(groups.job(job_id))
    groups.write_state(job, as_json=as_json)
    if not as_json:
        costs.say_receipt(job)


def retry(
    job_id: IdArgument,
    *,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Discard the stored results of its steps.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Retry a failed job with new attempts."""
    with connect(url, api_key) as client:
        job = client.retry(groups.job(job_id), fresh=fresh)
    groups.write_state(job, as_json=as_json)


def fork(
    job_id: IdArgument,
    start: Annotated[
        str, typer.Option("--from", help="The step to run again: its name or number.")
    ],
    *,
    value: Annotated[
        str | None, typer.Option("--input", help="Another input, as JSON.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would take.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Run a job again from a step on, as a new job with the results before it."""
    chosen: str | int = int(start) if start.isdecimal() else start
    given = SAME_INPUT if value is None else read_json(value)
    with connect(url, api_key) as client:
        found = groups.job(job_id)
        if dry_run:
            printing.write_json(client.quote_fork(found, chosen, given))
            return
        job = client.fork(found, chosen, given)
    groups.write_state(job, as_json=as_json)


def steps(
    job_id: IdArgument,
    *,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """List the stored steps of a job."""
    with connect(url, api_key) as client:
        found = client.steps(groups.job(job_id))
    if as_json:
        for step in found:
            printing.write_json(step)
        return
    fields = ("name", "kind", "state", "run", "size", "stored_at")
    rows = (tuple(step.get(field) for field in fields) for step in found)
    printing.write_rows(STEP_HEADINGS, rows)


def jobs(
    *,
    state: Annotated[
        str | None, typer.Option(help="Only this state: queued, running, failed, …")
    ] = None,
    capability: Annotated[str | None, typer.Option()] = None,
    queue: Annotated[str | None, typer.Option()] = None,
    tag: Annotated[str | None, typer.Option()] = None,
    since: Annotated[
        str | None, typer.Option(help="Start: 1h or 2d ago, or 2030-01-31T09:00:00Z.")
    ] = None,
    flow: Annotated[str | None, typer.Option(help="Only steps of this flow.")] = None,
    batch: Annotated[str | None, typer.Option(help="Only jobs of this batch.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = 50,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """List jobs, newest first."""
    with connect(url, api_key) as client:
        found = client.jobs(
            state=state,
            capability=capability,
            queue=queue,
            tag=tag,
            since=moment_of(since),
            flow=flow,
            batch=batch,
            limit=min(limit, 200),
        )
        _show(islice(found, limit), as_json=as_json)


def progress_of(job: Job) -> str:
    """Return the progress of a job in per cent."""
    told = job["progress"]
    if told is None or not told["total"]:
        return ""
    return f"{told['done'] / told['total']:.0%}"


def _show(found: Iterator[Job], *, as_json: bool) -> None:
    if as_json:
        for job in found:
            printing.write_json(job)
        return
    printing.write_rows(
        HEADINGS,
        (
            (
                job["id"],
                job["state"],
                job["capability"],
                job["queue"],
                f"{job['attempt']}/{job['max_attempts']}",
                progress_of(job),
                job["created_at"],
                costs.tokens_of(job),
                costs.cost_of(job),
                job.get("step"),
                job.get("flow_id"),
            )
            for job in found
        ),
    )


def input_of(text: str | None, file: Path | None) -> Any:
    """Read the input from the command line, a file or stdin."""
    if text is not None and file is not None:
        refuse("say either INPUT or --file")
    if text == "-":
        text = sys.stdin.read()
    elif file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            refuse(f"--file: {error}")
    return read_json(text or "{}")


def _completion(text: str | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    asked = read_json(text)
    if not isinstance(asked, dict):
        refuse('--completion: it is an object: {"capability": …, "input": …}')
    return asked


def _run_at(at: str | None, delay: str | None) -> str | None:
    if at is not None and delay is not None:
        refuse("say either --run-at or --delay")
    if delay is not None:
        return (now() + span(delay)).isoformat()
    return None if at is None else moment(at).isoformat()


def moment_of(text: str | None) -> str | None:
    """Parse a time, or a duration before now."""
    if text is None:
        return None
    is_span = text[-1:] in "smhd"
    return (now() - span(text) if is_span else moment(text)).isoformat()


def _wait(client: Client, job_id: str, timeout: float | None) -> Job:
    try:
        return following.follow(client, job_id, timeout)
    except KeyboardInterrupt:
        leave(Exit.INTERRUPTED, f"interrupted; job {job_id} continues")


def _attend(client: Client, job_id: str) -> tuple[Job, str]:
    try:
        return following.attend(client, job_id)
    except KeyboardInterrupt:
        leave(Exit.INTERRUPTED, f"interrupted; job {job_id} continues")


def _write_result(job: Job, streamed: str) -> None:
    """Print the output, unless it is the text that was already streamed."""
    if streamed:
        printing.write_text("\n")
    if streamed and streamed == job.get("output"):
        return
    if job["state"] == JobState.SUCCEEDED:
        printing.write_value(job.get("output"))


def _leave_by(job: Job) -> None:
    """Exit with the code of the job's state; return if it succeeded."""
    if not is_final(job):
        leave(
            Exit.TIMED_OUT,
            f"job {job['id']} is {job['state']} and goes on: "
            f"`backburner wait {job['id']}`",
        )
    if job["state"] != JobState.SUCCEEDED:
        error = job["error"]
        reason = f": {error['code']}, {error['message']}" if error else ""
        leave(Exit.JOB_FAILED, f"job {job['id']} {job['state']}{reason}")
