"""
Huey on SQLite, the strongest embedded peer: durable, results stored, thread workers.

    python -m bench.peer_huey drain|submit /some/folder
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
from huey import SqliteHuey

JOBS = 5_000
FOLDER = Path(os.environ.get("BENCH_FOLDER", "."))
huey = SqliteHuey("bench", filename=str(FOLDER / "huey.db"))


@huey.task()
def noop(payload: dict[str, object]) -> object:
    """Do nothing, and give the index back."""
    return payload["i"]


def payload(i: int) -> dict[str, object]:
    """Return some 200 bytes, as Backburner gets."""
    return {"i": i, "user": "u-000042", "kind": "noop", "pad": "x" * 150}


def submit() -> dict[str, float]:
    """Enqueue with the documented bulk call."""
    begun = time.perf_counter()
    noop.map([(payload(i),) for i in range(JOBS)])
    return {"per_second": round(JOBS / (time.perf_counter() - begun))}


def drain() -> dict[str, float]:
    """Run what was enqueued in one worker process with 100 threads."""
    submit()
    worker = subprocess.Popen(
        [
            *(sys.executable, "-m", "huey.bin.huey_consumer", "bench.peer_huey.huey"),
            *("-k", "thread", "-w", "100", "-n", "-q"),
        ]
    )
    process = psutil.Process(worker.pid)
    while huey.result_count() < 1:
        time.sleep(0.002)
    begun, first = time.perf_counter(), huey.result_count()
    before = process.cpu_times()
    while huey.result_count() < JOBS:
        time.sleep(0.02)
    wall, after = time.perf_counter() - begun, process.cpu_times()
    worker.send_signal(signal.SIGTERM)
    worker.wait()
    used = after.user + after.system - before.user - before.system
    count = JOBS - first
    return {"per_second": round(count / wall), "cpu_us": round(used / count * 1e6, 1)}


if __name__ == "__main__":
    from bench import peer_huey  # noqa: PLW0406 - tasks go by their module's name

    verbs = {"drain": peer_huey.drain, "submit": peer_huey.submit}
    print(json.dumps(verbs[sys.argv[1]]()))
