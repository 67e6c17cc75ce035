"""
Huey on SQLite: durable, results stored, thread workers.

    python -m bench.peers.huey_sqlite submit 5000|worker|stored|forget
"""

import os
import runpy
import sys
import time
from importlib.metadata import version
from pathlib import Path

from huey import SqliteHuey

from bench.peers import task

huey = SqliteHuey("bench", filename=str(Path(os.environ["BENCH_FOLDER"], "huey.db")))


@huey.task()
def noop(value: dict[str, object]) -> object:
    """Run the common task."""
    return task.run(value)


def submit(count: int) -> dict[str, object]:
    """Enqueue with the documented bulk call."""
    begun = time.perf_counter()
    noop.map([(task.payload(i),) for i in range(count)])
    spent = time.perf_counter() - begun
    return {"submit_per_second": round(count / spent), "version": version("huey")}


def worker() -> None:
    """Run Huey's own consumer, in one process with threads."""
    sys.argv = ["huey_consumer", "bench.peers.huey_sqlite.huey"]
    sys.argv += ["-k", "thread", "-w", "8", "-n", "-q"]
    runpy.run_module("huey.bin.huey_consumer", run_name="__main__")


def stored() -> int:
    """Count the results that are kept."""
    return int(huey.result_count())


def forget() -> None:
    """Do nothing: the folder's creator deletes the file."""


if __name__ == "__main__":
    task.main(__spec__.name)
