"""The peers, their requirements, and the measurement of one of them."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

PROJECT = Path(__file__).parents[2]
HOMES = PROJECT / ".bench"
"""Where `tools/bench-peers` installs them separately, as their pins conflict."""
POSTGRES = "BACKBURNER_TEST_POSTGRES_URL"
REDIS = "BACKBURNER_TEST_REDIS_URL"
RABBITMQ = "BACKBURNER_TEST_RABBITMQ_URL"
CAP_SECONDS = 60.0
STORED_TRIES = 20


@dataclass(frozen=True, slots=True)
class Peer:
    """Another queue: its command, its servers and its number of jobs."""

    name: str
    title: str
    store: str
    program: tuple[str, ...]
    jobs: int
    needs: tuple[str, ...] = ()
    """Variables with the URLs of its servers; the first is where its jobs are."""

    def missing(self) -> str | None:
        """Return the reason why it cannot be measured on this machine, or `None`."""
        if shutil.which(self.program[0]) is None:
            return "it is not installed (tools/bench-peers)"
        lacking = [need for need in self.needs if need not in os.environ]
        return f"{' and '.join(lacking)} not set" if lacking else None


def _python(home: str) -> str:
    return str(HOMES / home / "bin/python")


PEERS = (
    Peer(
        "huey-sqlite",
        "Huey on SQLite",
        "sqlite",
        (sys.executable, "-m", "bench.peers.huey_sqlite"),
        5_000,
    ),
    Peer(
        "saq-postgres",
        "SAQ on PostgreSQL",
        "postgres",
        (_python("saq"), "-m", "bench.peers.saq_queue"),
        3_000,
        (POSTGRES,),
    ),
    Peer(
        "saq-redis",
        "SAQ on Redis",
        "redis",
        (_python("saq"), "-m", "bench.peers.saq_queue"),
        5_000,
        (REDIS,),
    ),
    Peer(
        "celery-rabbitmq",
        "Celery on RabbitMQ",
        "rabbitmq",
        (_python("celery"), "-m", "bench.peers.celery_queue"),
        3_000,
        (RABBITMQ, REDIS),
    ),
    Peer(
        "dramatiq-rabbitmq",
        "Dramatiq on RabbitMQ",
        "rabbitmq",
        (_python("dramatiq"), "-m", "bench.peers.dramatiq_queue"),
        3_000,
        (RABBITMQ, REDIS),
    ),
    Peer(
        "taskiq-rabbitmq",
        "Taskiq on RabbitMQ",
        "rabbitmq",
        (_python("taskiq"), "-m", "bench.peers.taskiq_queue"),
        3_000,
        (RABBITMQ, REDIS),
    ),
    Peer(
        "bullmq-redis",
        "BullMQ on Redis (Node)",
        "redis",
        (str(HOMES / "bullmq/node"), str(PROJECT / "bench/peers/bullmq.js")),
        20_000,
        (REDIS,),
    ),
)


class NotDoneError(Exception):
    """The peer did not run all jobs, so its figures are not printed."""


def measure(peer: Peer, folder: Path, url: str, jobs: int) -> dict[str, Any]:
    """Submit jobs, run them in one worker, check that every result is stored."""
    marks = folder / "marks"
    marks.touch()
    env = os.environ | {
        "BENCH_FOLDER": str(folder),
        "BENCH_MARKS": str(marks),
        "BENCH_NAME": f"bench-{secrets.token_hex(4)}",
        "BENCH_RESULTS": os.environ.get(REDIS, ""),
        "BENCH_URL": url,
        "NODE_PATH": str(HOMES / "bullmq/node_modules"),
    }
    try:
        figures: dict[str, Any] = json.loads(_ask(peer, env, "submit", str(jobs)))
        with _worker(peer, env) as worker:
            figures |= _drained(worker, marks, jobs)
            _check_stored(peer, env, jobs)
    finally:
        _ask(peer, env, "forget")
    return figures


def _ask(peer: Peer, env: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [*peer.program, *words],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        cwd=PROJECT,
        timeout=CAP_SECONDS,
    )
    if done.returncode:
        raise NotDoneError(done.stderr.strip()[-400:])
    return done.stdout.strip().rpartition("\n")[2]


@contextlib.contextmanager
def _worker(peer: Peer, env: dict[str, str]) -> Iterator[psutil.Process]:
    """Run its worker in a separate process group, because some have children."""
    worker = subprocess.Popen(
        [*peer.program, "worker"],
        env=env,
        cwd=PROJECT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield psutil.Process(worker.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def _drained(worker: psutil.Process, marks: Path, jobs: int) -> dict[str, Any]:
    """Measure from the start of the first handler to the start of the last one."""
    _until(worker, marks, 1)
    begun, first, before = time.perf_counter(), _count(marks), _cpu(worker)
    _until(worker, marks, jobs)
    wall, used = time.perf_counter() - begun, _cpu(worker) - before
    count = jobs - first
    return {"per_second": round(count / wall), "cpu_us": round(used / count * 1e6, 1)}


def _until(worker: psutil.Process, marks: Path, count: int) -> None:
    deadline = time.monotonic() + CAP_SECONDS
    while _count(marks) < count:
        if time.monotonic() > deadline or not worker.is_running():
            raise NotDoneError(f"{_count(marks)} of {count} jobs were run")
        time.sleep(0.002)


def _check_stored(peer: Peer, env: dict[str, str], jobs: int) -> None:
    stored = 0
    for _ in range(STORED_TRIES):
        stored = int(_ask(peer, env, "stored"))
        if stored == jobs:
            return
    raise NotDoneError(f"{stored} of {jobs} results were stored")


def _count(marks: Path) -> int:
    return marks.stat().st_size


def _cpu(worker: psutil.Process) -> float:
    used = 0.0
    for process in (worker, *worker.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system
    return used
