"""Commands for jobs. Each calls the server and prints its answer."""

import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from backburner.cli import (
    costs,
    event_lines,
    following,
    groups,
    printing,
    waiting,
)
from backburner.cli.asking import moment, now, read_json, read_text, span
from backburner.cli.exits import Exit, leave, refuse
from backburner.cli.groups import IdArgument, TimeoutOption
from backburner.cli.remote import Server, remote
from backburner.client import Client, Job, JobChange, NotFound, is_final
from backburner.client.options import SAME_INPUT
from backburner.domain.jobs.job import JobState
from backburner.shapes.jobs import ForkQuote

CapabilityArgument = Annotated[
    str, typer.Argument(metavar="CAPABILITY", help="Name of the capability.")
]
InputArgument = Annotated[
    str | None,
    typer.Argument(metavar="INPUT|-", help="Input as JSON; - reads stdin."),
]
FileOption = Annotated[
    Path | None, typer.Option(help="Read the input from this file.", metavar="FILE")
]
QueueOption = Annotated[
    str | None, typer.Option(help="Queue. Default: that of the capability.")
]
PriorityOption = Annotated[
    int | None,
    typer.Option(help="Priority, 0 to 9; higher runs first.", metavar="N"),
]

HEADINGS = (
    *("ID", "STATE", "CAPABILITY", "QUEUE", "ATTEMPT", "PROGRESS", "CREATED"),
    *("TOKENS", "COST", "STEP", "FLOW"),
)
MOST_NAMED = 10
"""How many steps a dry run of a fork names."""
STEP_HEADINGS = ("NAME", "KIND", "STATE", "START EVENT", "MS", "SIZE", "STORED")
STEP_FIELDS = itemgetter(
    *("name", "kind", "state", "run", "duration_ms", "size", "stored_at")
)


@remote
def submit(
    server: Server,
    capability: CapabilityArgument,
    text: InputArgument = None,
    *,
    file: FileOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it ends and print the result.")
    ] = False,
    timeout: TimeoutOption = None,
    queue: QueueOption = None,
    priority: PriorityOption = None,
    run_at: Annotated[
        str | None, typer.Option(help="Start time: 2030-01-31T09:00:00Z.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(help="Delay before it starts: 30s, 5m, 2h, 1d.")
    ] = None,
    start_by: Annotated[
        str | None,
        typer.Option(help="Fail the job if it has not started by this time, or in 5m."),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(help="Fail the job if it has not ended by this time, or in 5m."),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(help="Number of attempts, the first included.", metavar="N"),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Tag to filter by. Can be repeated.")
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            help="Text to keep with the job. Can be repeated.", metavar="NAME=TEXT"
        ),
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
    callback: Annotated[
        str | None,
        typer.Option(help="URL that gets a webhook when the job ends.", metavar="URL"),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: a repeat returns the same job.")
    ] = None,
) -> None:
    """Submit a job and print its id, or its result with --wait."""
    groups.check_timeout(timeout, wait=wait)
    if key is not None and delay is not None:
        refuse("--delay cannot be combined with --key: use --run-at instead")
    job = server.client.submit(
        capability,
        input_of(text, file),
        key=key,
        queue=queue,
        priority=priority,
        run_at=_run_at(run_at, delay),
        start_by=_time_of("--start-by", start_by, key),
        deadline=_time_of("--deadline", deadline, key),
        max_attempts=max_attempts,
        tags=tag or None,
        metadata=_metadata(metadata),
        tokens=tokens,
        share=share,
        completion=_completion(completion),
        callback=None if callback is None else {"url": callback},
    ).job
    said = ""
    if wait:
        said = waiting.say_why(server.client, job, only=waiting.STUCK)
    is_live = wait and timeout is None and not server.as_json and sys.stdout.isatty()
    streamed = ""
    if is_live:
        job, streamed = _attend(server.client, job["id"])
    elif wait:
        job = _wait(server.client, job["id"], timeout)
    if server.as_json:
        printing.write_json(job)
    elif not wait:
        printing.write_line(job["id"])
    else:
        _write_result(job, streamed)
    if wait:
        waiting.say_why(server.client, job, said=said)
        _leave_by(job)


@remote
def status(
    server: Server,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Ids of jobs.")],
) -> None:
    """Show the state of jobs, and why they wait."""
    found, missing = [], []
    for one in ids:
        try:
            found.append(server.client.get(groups.job(one)))
        except NotFound as error:
            missing.append(f"{one}: {error}")
    if found:
        server.write_all(HEADINGS, found, _row)
    if not server.as_json:
        for job in found:
            printing.write_trace(job)
            waiting.say_why(server.client, job)
    if missing:
        for line in missing[:-1]:
            printing.say(f"backburner: {line}")
        leave(Exit.NOT_FOUND, missing[-1])


@remote
def wait(
    server: Server,
    job_id: IdArgument,
    *,
    timeout: TimeoutOption = None,
) -> None:
    """
    Wait until a job, flow or batch has ended and print its state.

    Exits with 1 unless everything succeeded.
    """
    if groups.is_group(job_id):
        seen = groups.wait(server.client, job_id, timeout)
        server.write(seen, groups.state_of(seen))
        groups.leave_by(seen)
        return
    job = _wait(server.client, job_id, timeout)
    server.write(job, groups.state_of(job))
    waiting.say_why(server.client, job)
    _leave_by(job)


@remote
def watch(
    server: Server,
    job_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Job, flow or batch. Default: all."),
    ] = None,
    *,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Start after this event number. Default: now."),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(help="Only events that applications publish with this topic."),
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Print only the streamed text.")
    ] = False,
) -> None:
    """
    Print events as they happen.

    Follows one job, flow or batch until it ends, or all events, or one topic.
    """
    if job_id is not None and (after is not None or topic is not None):
        refuse("give either an ID, or --after and --topic")
    if text and (job_id is None or server.as_json):
        refuse("--text needs an ID and cannot be combined with --json")
    if text and job_id is not None:
        following.write_all(server.client.pieces(job_id))
        _leave_by(server.client.get(job_id))
        return
    if job_id is None:
        events = server.client.all_events(after=after, topic=topic)
        event_lines.write_events(events, as_json=server.as_json, with_subject=True)
        return
    if groups.is_group(job_id):
        groups.leave_by(groups.watch(server.client, job_id, as_json=server.as_json))
        return
    event_lines.write_events(server.client.events(job_id), as_json=server.as_json)
    _leave_by(server.client.get(job_id))


@remote
def result(server: Server, job_id: IdArgument) -> None:
    """Print the result of a job; exit with 1 if it did not succeed."""
    job = server.client.get(groups.job(job_id))
    if not is_final(job):
        leave(
            Exit.CONFLICT,
            f"job {job_id} is {job['state']}: wait for it with `backburner wait`",
        )
    if job["state"] == JobState.SUCCEEDED:
        output = job.get("output")
        printing.write_json(output) if server.as_json else printing.write_value(output)
    _leave_by(job)


@remote
def cancel(server: Server, job_id: IdArgument) -> None:
    """
    Cancel a job, even while it is running. Repeating this is not an error.

    Prints what the job has used and which effects cannot be undone.
    """
    job = server.client.cancel(groups.job(job_id))
    server.write(job, groups.state_of(job))
    if not server.as_json:
        costs.say_receipt(job)


@remote
def change(
    server: Server,
    job_id: IdArgument,
    *,
    priority: PriorityOption = None,
    run_at: Annotated[
        str | None, typer.Option(help="Start time: 2030-01-31T09:00:00Z.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(help="Delay before it starts: 30s, 5m, 2h, 1d.")
    ] = None,
    start_now: Annotated[
        bool, typer.Option("--now", help="Start as soon as possible.")
    ] = False,
) -> None:
    """Change the priority or the start time of a job that has not started."""
    asked: JobChange = {}
    if priority is not None:
        asked["priority"] = priority
    at = _run_at(run_at, delay)
    if start_now and at is not None:
        refuse("give either --now or another start time")
    if start_now or at is not None:
        asked["run_at"] = at
    if not asked:
        refuse("give --priority, --run-at, --delay or --now")
    changed = server.client.change(groups.job(job_id), **asked)
    server.write(changed, groups.state_of(changed))


@remote
def retry(
    server: Server,
    job_id: IdArgument,
    *,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Discard the stored results of its steps.")
    ] = False,
) -> None:
    """Retry a failed job with new attempts."""
    job = server.client.retry(groups.job(job_id), fresh=fresh)
    server.write(job, groups.state_of(job))


@remote
def fork(
    server: Server,
    job_id: IdArgument,
    start: Annotated[
        str, typer.Option("--from", help="The step to run again: its name or number.")
    ],
    *,
    value: Annotated[
        str | None, typer.Option("--input", help="New input, as JSON.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which results it would reuse.")
    ] = False,
) -> None:
    """Run a job again from one of its steps, as a new job, and print its id."""
    chosen: str | int = int(start) if start.isdecimal() else start
    given = SAME_INPUT if value is None else read_json(value)
    found = groups.job(job_id)
    if dry_run:
        quoted = server.client.quote_fork(found, chosen, given)
        server.write(quoted, _told_of_fork(quoted))
        return
    job = server.client.fork(found, chosen, given)
    server.write(job, job["id"])


def _told_of_fork(quoted: ForkQuote) -> str:
    """Describe which results a fork reuses, where it starts and what it may use."""
    names = [f"{n} {name}" for n, name in enumerate(quoted["reused"], 1)]
    count = len(names)
    more = ", …" if count > MOST_NAMED else ""
    shown = f": {', '.join(names[:MOST_NAMED])}{more}" if names else ""
    tokens = quoted["quote"]["tokens"]
    return (
        f"reuses {count} {'step' if count == 1 else 'steps'}{shown}; "
        f"runs from step {count + 1}"
        f"{'' if tokens is None else f'; about {tokens} tokens'}"
    )


@remote
def steps(server: Server, job_id: IdArgument) -> None:
    """List the stored steps of a job."""
    found = server.client.steps(groups.job(job_id))
    server.write_all(STEP_HEADINGS, found, STEP_FIELDS)


@remote
def jobs(
    server: Server,
    *,
    state: Annotated[
        str | None, typer.Option(help="Only this state: queued, running, failed, …")
    ] = None,
    capability: Annotated[
        str | None, typer.Option(help="Only jobs of this capability.")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Only jobs of this queue.")] = None,
    tag: groups.TagOption = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            help="Only jobs with this text in their metadata. Can be repeated.",
            metavar="NAME=TEXT",
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Start: 1h or 2d ago, or 2030-01-31T09:00:00Z.")
    ] = None,
    flow: Annotated[str | None, typer.Option(help="Only steps of this flow.")] = None,
    batch: Annotated[str | None, typer.Option(help="Only jobs of this batch.")] = None,
    worker: Annotated[
        str | None, typer.Option(help="Only jobs that this worker runs.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = 50,
) -> None:
    """List jobs, newest first."""
    found = server.client.jobs(
        state=state,
        capability=capability,
        queue=queue,
        tag=tag,
        metadata=_metadata(metadata),
        since=moment_of(since),
        flow=flow,
        batch=batch,
        worker=worker,
        limit=min(limit, 200),
    )
    server.write_all(HEADINGS, islice(found, limit), _row, uniform="QUEUE")


def progress_of(job: Job) -> str:
    """Return the progress of a job in per cent."""
    told = job["progress"]
    if told is None or not told["total"]:
        return ""
    return f"{told['done'] / told['total']:.0%}"


def _row(job: Job) -> Sequence[Any]:
    return (
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


def input_of(text: str | None, file: Path | None) -> Any:
    """Read the input from the command line, a file or stdin."""
    if text is not None and file is not None:
        refuse("give either INPUT or --file")
    if text == "-":
        text = sys.stdin.read()
    elif file is not None:
        text = read_text(file, "--file")
    return read_json(text or "{}")


def _metadata(told: list[str] | None) -> Mapping[str, str] | None:
    if not told:
        return None
    pairs = [one.partition("=") for one in told]
    if not all(mark for _, mark, _ in pairs):
        refuse("--metadata: write NAME=TEXT")
    return {name: text for name, _, text in pairs}


def _completion(text: str | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    asked = read_json(text)
    if not isinstance(asked, dict):
        refuse('--completion must be an object: {"capability": …, "input": …}')
    return asked


def _run_at(at: str | None, delay: str | None) -> str | None:
    if at is not None and delay is not None:
        refuse("give either --run-at or --delay")
    if delay is not None:
        return (now() + span(delay)).isoformat()
    return None if at is None else moment(at).isoformat()


def _time_of(option: str, text: str | None, key: str | None) -> str | None:
    """Parse a time, or a duration from now, which differs in a repeated request."""
    if text is None:
        return None
    if text[-1:] not in "smhd":
        return moment(text, "5m, 2h or ").isoformat()
    if key is not None:
        refuse(f"{option} {text} cannot be combined with --key: give a time instead")
    return (now() + span(text)).isoformat()


def moment_of(text: str | None) -> str | None:
    """Parse a time, or a duration before now."""
    if text is None:
        return None
    if text[-1:] in "smhd":
        return (now() - span(text)).isoformat()
    return moment(text, "2h, 1d or ").isoformat()


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
            f"job {job['id']} is {job['state']} and continues; wait for it with "
            f"`backburner wait {job['id']}`",
        )
    if job["state"] != JobState.SUCCEEDED:
        error = job["error"]
        reason = f": {error['code']}, {error['message']}" if error else ""
        leave(Exit.JOB_FAILED, f"job {job['id']} {job['state']}{reason}")
