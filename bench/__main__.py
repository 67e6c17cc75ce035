"""
Run the table: every row in fresh processes, several times, the peers in between.

    make bench ARGS="--reps 3 --only drain,http --out bench.json"
"""

import argparse
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what is run, which figure counts, and the goal."""

    name: str
    title: str
    figure: str
    goal: float
    is_higher_better: bool
    reference: tuple[str, float] | None = None
    """A peer's figure as the spec records it, and whose it is."""
    peer: tuple[str, str] | None = None
    """A peer that is measured in the same run: module and verb."""


ROWS = (
    Row(
        "drain",
        "drain no-op jobs, one process, jobs/s",
        "per_second",
        12_000,
        True,
        ("BullMQ on Node", 6_780),
        ("bench.peer_huey", "drain"),
    ),
    Row("drain", "CPU a job, ms", "cpu_us", 80, False, ("BullMQ on Node", 130)),
    Row(
        "drain_over_history",
        "drain over 1,000,000 finished jobs, jobs/s",
        "per_second",
        10_800,
        True,
    ),
    Row(
        "submit_singly",
        "submit, one a call from 100 tasks, jobs/s",
        "per_second",
        12_000,
        True,
    ),
    Row(
        "submit_bulk",
        "submit, 500 a call, jobs/s",
        "per_second",
        25_000,
        True,
        ("BullMQ on Python, not durable", 11_100),
        ("bench.peer_huey", "submit"),
    ),
    Row(
        "http", "HTTP POST /v1/jobs, 100 connections, 202/s", "per_second", 2_000, True
    ),
    Row("http", "… its p99, ms", "p99_ms", 100, False),
    Row(
        "latency_here",
        "idle submit → start, same process, p50 ms",
        "p50_ms",
        2.0,
        False,
        ("Huey on Redis", 1.1),
    ),
    Row(
        "latency_there",
        "idle submit → start, another process, p50 ms",
        "p50_ms",
        2.5,
        False,
        ("Huey on SQLite", 15.6),
    ),
    Row("latency_there", "… its worker's idle CPU, %", "idle_cpu_percent", 0.5, False),
    Row(
        "naps",
        "1,000 jobs of 1 s at once, wall s",
        "wall_s",
        1.15,
        False,
        ("BullMQ on Node", 1.19),
    ),
    Row("naps", "… its memory, MB", "rss_mb", 120, False, ("SAQ on Redis", 58)),
)


def main() -> None:
    """Measure, print, write."""
    asked = argparse.ArgumentParser(prog="make bench ARGS=…", description=__doc__)
    asked.add_argument("--reps", type=int, default=3, help="fresh processes per row")
    asked.add_argument("--only", default="", help="names of rows, by comma")
    asked.add_argument("--out", type=Path, default=Path("bench.json"))
    options = asked.parse_args()
    only = set(filter(None, options.only.split(",")))
    rows = [row for row in ROWS if not only or row.name in only]
    measured = _measure_all(rows, options.reps)
    _print(rows, measured)
    options.out.write_text(json.dumps(_report(measured), indent=2) + "\n")
    print(f"\nwritten to {options.out}", file=sys.stderr)


def _measure_all(rows: list[Row], reps: int) -> dict[str, list[dict[str, Any]]]:
    runs = dict.fromkeys(f"bench.rows {row.name}" for row in rows)
    runs |= dict.fromkeys(" ".join(row.peer) for row in rows if row.peer)
    measured: dict[str, list[dict[str, Any]]] = {run: [] for run in runs}
    for rep in range(reps):
        for run in runs:
            print(f"{rep + 1}/{reps} {run}", file=sys.stderr, flush=True)
            figures = _measure(*run.split())
            if figures is not None:
                measured[run].append(figures)
    return measured


def _measure(module: str, verb: str) -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        done = subprocess.run(
            [sys.executable, "-m", module, verb, folder],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"BENCH_FOLDER": folder},
        )
    if done.returncode:
        print(f"  no figure: {done.stderr.strip()[-400:]}", file=sys.stderr)
        return None
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _print(rows: list[Row], measured: dict[str, list[dict[str, Any]]]) -> None:
    print("| | Backburner | goal | peer, same run | peer on record |")
    print("| --- | --- | --- | --- | --- |")
    for row in rows:
        values = [run[row.figure] for run in measured[f"bench.rows {row.name}"]]
        if not values:
            continue
        cells = [row.title, _spread(values), f"{row.goal:,g}"]
        cells += [_beside(row, values, measured), _on_record(row, values)]
        print("| " + " | ".join(cells) + " |")


def _spread(values: list[float]) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"**{middle:,g}** [{low:,g}–{high:,g}]"


def _beside(
    row: Row, ours: list[float], measured: dict[str, list[dict[str, Any]]]
) -> str:
    if row.peer is None:
        return ""
    theirs = [run[row.figure] for run in measured[" ".join(row.peer)]]
    if not theirs:
        return "not measured"
    return f"Huey {_spread(theirs)}: {_ratio(row, ours, statistics.median(theirs))}"


def _on_record(row: Row, ours: list[float]) -> str:
    if row.reference is None:
        return ""
    name, figure = row.reference
    return f"{name} {figure:,g}: {_ratio(row, ours, figure)}"


def _ratio(row: Row, ours: list[float], theirs: float) -> str:
    middle = statistics.median(ours)
    ratio = middle / theirs if row.is_higher_better else theirs / middle
    return f"{ratio:.1f} ×"


def _report(measured: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        "machine": {
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
        },
        "runs": measured,
    }


if __name__ == "__main__":
    main()
