"""
Measure every row several times, each in fresh processes, and the competitors.

    make bench ARGS="--reps 3 --only drain,http --stores postgres --peers none"
    make bench ARGS="--only drain --stores none --brokers redis"
    make bench ARGS="--readme"      publishes the last run: docs/benchmarks.json,
                                    docs/benchmarks.md and the table in README.md
"""

import argparse
import contextlib
import json
import os
import platform
import secrets
import sqlite3
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import table
from bench.brokers import forget_queue, version_of
from bench.peers.roster import (
    PEERS,
    POSTGRES,
    PROJECT,
    RABBITMQ,
    REDIS,
    NotDoneError,
    Peer,
    measure,
)
from bench.servers import ask, fresh_database

LAST = PROJECT / ".bench/last.json"
PUBLISHED = "docs/benchmarks.json"
SQS = "BACKBURNER_TEST_SQS_URL"
PGVECTOR = "BACKBURNER_TEST_PGVECTOR_URL"
BROKERS = {table.RABBITMQ: RABBITMQ, table.REDIS: REDIS, table.SQS: SQS}
"""The environment variable with each broker's URL."""
PLAYED = 100
"""Jobs per row on SQS, which is simulated by moto and slow."""
Run = tuple[str, str] | Peer
"""A store or a broker and a row, or a peer."""


def main() -> None:
    """Measure, print and write a report, or publish the last one."""
    options = _options()
    if options.readme:
        publish(options.out)
        return
    rows = table.named(_words(options.only))
    os.environ |= {"BENCH_JOBS": str(options.jobs)}
    report = _measured(_runs(rows, options), options)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    print(table.render(rows, report))
    say(f"written to {options.out}")


def _options() -> argparse.Namespace:
    asked = argparse.ArgumentParser(
        prog="make bench ARGS=…",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    asked.add_argument("--reps", type=int, default=3, help="fresh processes per row")
    asked.add_argument(
        "--only", default="", help="names of rows, separated by commas; default: all"
    )
    asked.add_argument(
        "--stores", default="", help="sqlite, postgres or none; default: all"
    )
    asked.add_argument(
        "--brokers", default="", help="rabbitmq, redis, sqs or none; default: all"
    )
    asked.add_argument(
        "--peers", default="", help="names separated by commas, or none; default: all"
    )
    asked.add_argument(
        "--jobs", type=int, default=20_000, help="jobs per row; default: 20000"
    )
    asked.add_argument(
        "--out", type=Path, default=LAST, help="JSON file with the figures"
    )
    asked.add_argument(
        "--readme", action="store_true", help="publish the figures of --out"
    )
    return asked.parse_args()


def publish(figures: Path, project: Path = PROJECT) -> None:
    """Copy the figures of a run to the documentation and rewrite its tables."""
    if not figures.exists():
        sys.exit(f"{figures} does not exist: run `make bench` first")
    text = figures.read_text()
    report = json.loads(text)
    for page, written in tables(report).items():
        path = project / page
        path.write_text(table.replaced(path.read_text(), written))
    (project / PUBLISHED).write_text(text)
    say(f"published {figures}: {PUBLISHED}, docs/benchmarks.md, README.md")


def tables(report: dict[str, Any]) -> dict[str, str]:
    """Return the tables of a run by the page that shows them."""
    full = table.render(table.ROWS, report)
    return {"README.md": table.summarise(report), "docs/benchmarks.md": full}


def _runs(rows: list[table.Row], options: argparse.Namespace) -> list[Run]:
    """List what to run; print a line for each entry without its server or program."""
    stores = [s for s in table.STORES if s in (_words(options.stores) or table.STORES)]
    if table.POSTGRES in stores and POSTGRES not in os.environ:
        say(f"no rows on PostgreSQL: {POSTGRES} is not set")
        stores.remove(table.POSTGRES)
    runs: list[Run] = [
        (store, name)
        for name in dict.fromkeys(row.name for row in rows)
        for store in (stores[:1] if name in table.ANY_STORE else stores)
    ]
    runs += _brokered(_words(options.only), _words(options.brokers))
    if any(row.peer_figure for row in rows):
        runs += _peers(_words(options.peers))
    return runs


def _brokered(only: set[str], names: set[str]) -> list[Run]:
    rows = table.named(only, table.BROKER_ROWS)
    brokers = [broker for broker in BROKERS if not names or broker in names]
    runs: list[Run] = []
    for broker in brokers:
        lacking = [n for n in (BROKERS[broker], POSTGRES) if n not in os.environ]
        if lacking and rows:
            say(f"no rows on {table.BROKERS[broker]}: {lacking[0]} is not set")
        else:
            runs += [(broker, name) for name in dict.fromkeys(r.name for r in rows)]
    return runs


def _peers(names: set[str]) -> list[Peer]:
    found = []
    for peer in PEERS:
        if names and peer.name not in names:
            continue
        if why := peer.missing():
            say(f"no {peer.title}: {why}")
        else:
            found.append(peer)
    return found


def _measured(runs: list[Run], options: argparse.Namespace) -> dict[str, Any]:
    measured: dict[str, list[dict[str, Any]]] = {_key(run): [] for run in runs}
    for rep in range(options.reps):
        for run in runs:
            say(f"{rep + 1}/{options.reps} {_key(run)}")
            try:
                figures = _measure(run, options.jobs)
            except (NotDoneError, subprocess.SubprocessError, OSError) as error:
                say(f"  no figure: {error}")
                continue
            # After each run, so that an interruption loses no figures.
            say(f"  {json.dumps(figures)}")
            measured[_key(run)].append(figures)
    table.add_shares(measured)
    peers = [run for run in runs if isinstance(run, Peer)]
    return {
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {"cores": os.cpu_count(), "versions": _versions()},
        "reps": options.reps,
        "peers": {p.name: _told(p, measured[_key(p)]) for p in peers},
        "runs": measured,
    }


def _commit() -> str:
    """Return the commit that was measured, marked if files were changed since."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT,
    )
    return described.stdout.strip() or "unknown"


def _key(run: Run) -> str:
    return f"peer {run.name}" if isinstance(run, Peer) else " ".join(run)


def _told(peer: Peer, runs: list[dict[str, Any]]) -> dict[str, str]:
    name, _, rest = peer.title.partition(" ")
    version = runs[0]["version"] if runs else ""
    return {"title": f"{name} {version} {rest}", "store": peer.store}


def _versions() -> dict[str, str]:
    versions = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version}
    if server := os.environ.get(POSTGRES):
        versions["PostgreSQL"] = (ask(server, "SHOW server_version") or "").split()[0]
    for broker in (table.RABBITMQ, table.REDIS):
        if server := os.environ.get(BROKERS[broker]):
            versions[table.BROKERS[broker]] = version_of(server)
    return versions


def _measure(run: Run, jobs: int) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        prefix = tempfile.TemporaryDirectory(prefix="bench")
        folder = Path(stack.enter_context(prefix))
        if isinstance(run, Peer):
            url = os.environ[run.needs[0]] if run.needs else ""
            if run.store == table.POSTGRES:
                url = stack.enter_context(fresh_database(url))
            return measure(run, folder, url, min(run.jobs, jobs))
        place, row = run
        if place == table.SQLITE:
            return _row(row, folder, {"BENCH_STORE": f"sqlite:///{folder}/bench.db"})
        server = os.environ[POSTGRES]
        if row in table.WITH_PGVECTOR:
            server = os.environ.get(PGVECTOR, server)
        url = stack.enter_context(fresh_database(server))
        if place == table.POSTGRES:
            return _row(row, folder, {"BENCH_STORE": url})
        queue = f"bench-{secrets.token_hex(4)}"
        broker = os.environ[BROKERS[place]]
        stack.callback(forget_queue, broker, queue)
        env = {"BENCH_STORE": url, "BENCH_TRANSPORT": broker, "BENCH_QUEUE": queue}
        if place == table.SQS:
            env["BENCH_JOBS"] = str(min(PLAYED, jobs))
        return _row(row, folder, env)


def _row(name: str, folder: Path, env: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.rows", name, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT,
        env=os.environ | env,
    )
    if done.returncode:
        raise NotDoneError(done.stderr.strip()[-400:])
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _words(text: str) -> set[str]:
    return set(filter(None, text.split(",")))


def say(line: str) -> None:
    """Print a line of progress to standard error."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
