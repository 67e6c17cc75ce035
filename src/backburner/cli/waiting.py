"""Says why a job does not run, and which command helps."""

import shlex
from typing import Final

from backburner.cli import printing
from backburner.client import Client, ClientError, Job
from backburner.client.dialogue import job_path
from backburner.domain.jobs.job import JobState

WAITS: Final = frozenset(
    {JobState.BLOCKED, JobState.SCHEDULED, JobState.QUEUED, JobState.WAITING}
)
STUCK: Final = frozenset({"no_worker", "paused"})
"""Reasons that last until somebody does something."""


def say_why(
    client: Client, job: Job, *, only: frozenset[str] | None = None, said: str = ""
) -> str:
    """
    Print why a job waits and which command helps; return the line.

    Nothing is printed if the job does not wait, if the reason is not one of `only`, or
    if the line is the one that was already `said`.
    """
    line = _explained(client, job, only)
    if line and line != said:
        printing.say(f"backburner: {line}")
    return line


def _explained(client: Client, job: Job, only: frozenset[str] | None) -> str:
    if job["state"] not in WAITS:
        return ""
    try:
        told = client.call("GET", f"{job_path(job['id'])}/waiting")
    except ClientError:
        return ""  # without it the command does what it was asked for
    reason = told["reason"]
    if reason is None or (only is not None and reason not in only):
        return ""
    until = f" until {told['until']}" if told["until"] else ""
    command = _command(client, job, reason)
    return f"job {job['id']} is {job['state']}{until}: {told['detail']}{command}"


def _command(client: Client, job: Job, reason: str) -> str:
    """Return a sentence with the command that ends the wait; empty if none does."""
    job_id, queue = job["id"], job["queue"]
    wait = job.get("wait")
    name = shlex.quote(wait.get("name") or "NAME") if wait else "NAME"
    is_new = job["state"] == JobState.SCHEDULED and not job["attempt"]
    commands = {
        "question": f"Answer it: `backburner answer {job_id} {name} JSON`",
        "signal": f"Send it: `backburner signal {job_id} {name} JSON`",
        "job": f"See it: `backburner status {name}`",
        "dependency": f"See them: `backburner flows show {job.get('flow_id')}`",
        "paused": f"Resume it: `backburner queues resume {shlex.quote(queue)}`",
        "time": f"Start it: `backburner change {job_id} --now`" if is_new else None,
        "no_worker": _worker(client, queue) if reason == "no_worker" else None,
    }
    command = commands.get(reason)
    return "" if command is None else f" {command}"


def _worker(client: Client, queue: str) -> str:
    try:
        drained = [worker for worker in client.workers() if queue in worker["queues"]]
    except ClientError:
        drained = []  # the key may not list workers
    if drained:
        return f"Resume one: `backburner workers resume {drained[0]['id']}`"
    return "Start one: `backburner worker --app MODULE:APP`"
