"""What is measured, against which goals, and how it reads as a table. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""Figures of every repetition, by `"<place> <row>"` or `"peer <name>"`."""

SQLITE, POSTGRES = "sqlite", "postgres"
RABBITMQ, REDIS, SQS = "rabbitmq", "redis", "sqs"
THOUSAND = 1_000
STORES = {SQLITE: "SQLite", POSTGRES: "PostgreSQL"}
BROKERS = {RABBITMQ: "RabbitMQ", REDIS: "Redis", SQS: "SQS, played by moto"}
"""Who tells workers of work, where it is not the store; the store is PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what is run, which figure counts, and the goals."""

    name: str
    title: str
    figure: str
    goals: Mapping[str, float]
    is_higher_better: bool = True
    peer_figure: str | None = None
    """The figure of the peers that stands beside it."""
    record: Mapping[str, float] = field(default_factory=dict)
    """Figures of peers that this run does not measure, as they were once taken."""


def _both(goal: float) -> dict[str, float]:
    return dict.fromkeys(STORES, goal)


SENTENCES = (
    Row(
        "sentences",
        "sentences that become tasks over two services and a worker, tasks/s",
        "per_second",
        {},
    ),
    Row(
        "sentences",
        "… submit → task there, 20 under way, p99 ms",
        "p99_ms",
        {},
        is_higher_better=False,
    ),
    Row(
        "sentences",
        "… one after the other, mean ms",
        "singly_ms",
        {},
        is_higher_better=False,
    ),
    Row(
        "sentences",
        "… the share of that time that is ours, not the model's call's",
        "ours_of_time",
        {},
        is_higher_better=False,
    ),
    Row(
        "sentences",
        "… CPU a sentence of the three processes, µs",
        "cpu_us",
        {},
        is_higher_better=False,
    ),
    Row(
        "sentences",
        "… the share of that CPU that is ours, not the SDK's",
        "ours_of_cpu",
        {},
        is_higher_better=False,
    ),
)
ANY_STORE = frozenset({"blobs_s3", "embedding"})
"""Rows that take minutes and on which the database has no influence: run on one."""

DISCORD_LIMIT = dict.fromkeys((SQLITE, POSTGRES, *BROKERS), 3_000.0)
"""Discord waits for three seconds."""
RETRIEVAL = (
    Row(
        "searches",
        "search over 100,000 chunks of one user, question embedded, p95 ms",
        "p95_ms",
        _both(100),
        is_higher_better=False,
    ),
    Row("searches", "… p50, ms", "p50_ms", {}, is_higher_better=False),
    Row(
        "searches",
        "… the first, which reads the vectors, ms",
        "first_ms",
        {},
        is_higher_better=False,
    ),
    Row("searches", "… memory, MB", "rss_mb", {}, is_higher_better=False),
    Row(
        "embedding", "chunks embedded by the offline model, chunks/s", "per_second", {}
    ),
    Row("embedding", "… CPU a chunk, µs", "cpu_us", {}, is_higher_better=False),
)
CONVERSATIONS = (
    Row(
        "conversations",
        "messages that `chat` answers over a server and a worker, replies/s",
        "per_second",
        {},
    ),
    Row(
        "conversations",
        "… request → reply, 20 under way, p99 ms",
        "p99_ms",
        {},
        is_higher_better=False,
    ),
    Row(
        "conversations",
        "… CPU a reply of the two processes, µs",
        "cpu_us",
        {},
        is_higher_better=False,
    ),
    Row(
        "deferrals",
        "Discord's commands deferred while 200 jobs run, 20 under way, p99 ms",
        "p99_ms",
        DISCORD_LIMIT,
        is_higher_better=False,
    ),
)

UPLOADS = (
    Row("uploads", "files that `documents` makes ready, files/s", "per_second", {}),
    Row(
        "uploads",
        "… confirm → ready, p95 ms",
        "p95_ms",
        {},
        is_higher_better=False,
    ),
    Row(
        "uploads",
        "… memory of the worker over 1,000 files, MB",
        "worker_mb",
        {},
        is_higher_better=False,
    ),
    Row("uploads", "… of the server, MB", "server_mb", {}, is_higher_better=False),
    Row("uploads", "… of an extractor, MB", "child_mb", {}, is_higher_better=False),
    Row(
        "uploads_limited",
        "the same with its limits, confirm → ready, p95 ms",
        "p95_ms",
        {},
        is_higher_better=False,
    ),
)


ROWS = (
    Row(
        "drain",
        "drain no-op jobs, one process, jobs/s",
        "per_second",
        {SQLITE: 12_000, POSTGRES: 10_000},
        peer_figure="per_second",
    ),
    Row(
        "drain",
        "… worker CPU a job, µs",
        "cpu_us",
        {SQLITE: 80, POSTGRES: 60},
        is_higher_better=False,
        peer_figure="cpu_us",
    ),
    Row(
        "drain_over_history",
        "drain over 1,000,000 finished jobs, jobs/s",
        "per_second",
        {SQLITE: 10_800, POSTGRES: 9_000},
    ),
    Row("drain_over_history", "… as a share of the plain drain", "share", _both(0.9)),
    Row(
        "flows",
        "a batch of flows of three no-op stages, jobs/s",
        "per_second",
        {SQLITE: 9_600, POSTGRES: 8_000},
    ),
    Row("flows", "… as a share of the plain drain", "share", _both(0.8)),
    Row(
        "settled_with_bodies",
        "drain jobs that write a row by `ctx.at_settlement`, 20 slots, jobs/s",
        "per_second",
        {SQLITE: 2_000, POSTGRES: 2_000},
    ),
    Row(
        "settled_with_bodies",
        "… worker CPU a job, µs",
        "cpu_us",
        {},
        is_higher_better=False,
    ),
    Row(
        "blobs",
        "stream a blob of 1 GiB into a folder, hashed and fsynced, MiB/s",
        "write_mb",
        {},
    ),
    Row("blobs", "… out of it, MiB/s", "read_mb", {}),
    Row(
        "blobs",
        "… growth of the process's memory, MiB",
        "growth_mb",
        _both(64),
        is_higher_better=False,
    ),
    Row(
        "blobs_s3",
        "stream a blob of 1 GiB into S3, which moto plays, hashed, MiB/s",
        "write_mb",
        {},
    ),
    Row("blobs_s3", "… out of it, MiB/s", "read_mb", {}),
    Row(
        "blobs_s3",
        "… growth of the process's memory, MiB",
        "growth_mb",
        _both(64),
        is_higher_better=False,
    ),
    Row(
        "loaded",
        "CPU of a job with budget, webhook and events on, as a multiple of a plain one",
        "multiple",
        _both(3.0),
        is_higher_better=False,
    ),
    Row(
        "loaded",
        "… and of the webhook's delivery, a job of its own, µs",
        "delivery_cpu_us",
        _both(4_000),
        is_higher_better=False,
    ),
    Row(
        "submit_singly",
        "submit, one a call from 100 tasks, jobs/s",
        "per_second",
        {SQLITE: 12_000, POSTGRES: 8_000},
    ),
    Row(
        "submit_bulk",
        "submit, 500 a call, jobs/s",
        "per_second",
        {SQLITE: 25_000, POSTGRES: 20_000},
        peer_figure="submit_per_second",
    ),
    Row(
        "http",
        "HTTP `POST /v1/jobs`, 100 connections, 202/s",
        "per_second",
        _both(2_000),
    ),
    Row("http", "… its p99, ms", "p99_ms", _both(100), is_higher_better=False),
    Row(
        "latency_here",
        "idle submit → start, same process, p50 ms",
        "p50_ms",
        {SQLITE: 2.0, POSTGRES: 3.0},
        is_higher_better=False,
        record={"Huey on Redis": 1.1},
    ),
    Row(
        "latency_there",
        "idle submit → start, another process, p50 ms",
        "p50_ms",
        {SQLITE: 2.5, POSTGRES: 3.0},
        is_higher_better=False,
        record={"SAQ on Redis": 1.7, "SAQ on PostgreSQL": 5.5},
    ),
    Row(
        "latency_there",
        "… its worker's idle CPU, %",
        "idle_cpu_percent",
        _both(0.5),
        is_higher_better=False,
    ),
    Row(
        "owners",
        "first pages (jobs, failures, events) of one owner among 10,000 with 1,000,000 "
        "jobs, the slowest as a multiple of an otherwise empty table",
        "worst_ratio",
        _both(2.0),
        is_higher_better=False,
    ),
    Row("owners", "… its jobs, ms", "jobs_ms", {}, is_higher_better=False),
    Row("owners", "… its failures, ms", "failures_ms", {}, is_higher_better=False),
    Row("owners", "… its events, ms", "events_ms", {}, is_higher_better=False),
    Row(
        "naps",
        "1,000 jobs of 1 s at once, wall s",
        "wall_s",
        _both(1.15),
        is_higher_better=False,
        record={"BullMQ on Redis (Node)": 1.19},
    ),
    Row(
        "naps",
        "… its memory, MB",
        "rss_mb",
        _both(120),
        is_higher_better=False,
        record={"SAQ on Redis": 58},
    ),
    *SENTENCES,
    *CONVERSATIONS,
    *UPLOADS,
    *RETRIEVAL,
)


BROKER_ROWS = (
    Row(
        "drain",
        "drain no-op jobs, one process, jobs/s",
        "per_second",
        {RABBITMQ: 4_000, REDIS: 6_000},
        peer_figure="per_second",
    ),
    Row(
        "drain",
        "… worker CPU a job, µs",
        "cpu_us",
        {},
        is_higher_better=False,
        peer_figure="cpu_us",
    ),
    Row(
        "latency_there",
        "idle submit → start, another process, p50 ms",
        "p50_ms",
        {RABBITMQ: 3.0, REDIS: 3.0},
        is_higher_better=False,
        record={
            "Celery on RabbitMQ": 3.4,
            "Dramatiq on RabbitMQ": 1.6,
            "Taskiq on RabbitMQ": 2.9,
            "SAQ on Redis": 1.7,
        },
    ),
    Row("latency_there", "… its p99, ms", "p99_ms", {}, is_higher_better=False),
    Row(
        "latency_there",
        "… its worker's idle CPU, %",
        "idle_cpu_percent",
        {},
        is_higher_better=False,
    ),
    *SENTENCES,
    *CONVERSATIONS,
    *UPLOADS,
)
"""What is measured with a broker before the store; the store's own rows are above."""


def named(names: set[str], rows: Sequence[Row] = ROWS) -> list[Row]:
    """Return the rows with these names, all of them if none is named."""
    return [row for row in rows if not names or row.name in names]


def add_shares(runs: dict[str, list[dict[str, Any]]]) -> None:
    """Compare drains with the plain drain of their repetition."""
    for store in STORES:
        plain = runs.get(f"{store} drain", [])
        for name in ("drain_over_history", "flows"):
            for run, beside in zip(
                runs.get(f"{store} {name}", []), plain, strict=False
            ):
                run["share"] = round(run["per_second"] / beside["per_second"], 2)


def render(rows: Sequence[Row], report: Mapping[str, Any]) -> str:
    """Write the tables and how they came about, in Markdown."""
    names = {row.name for row in rows}
    brokered = [row for row in BROKER_ROWS if row.name in names]
    told = "With a broker that tells workers of work, on PostgreSQL:"
    by_broker = _table(brokered, BROKERS, report)
    parts = ["", _origin(report), "", *_table(rows, STORES, report), ""]
    return "\n".join([*parts, *([told, "", *by_broker, ""] if by_broker else [])])


def _table(
    rows: Sequence[Row], places: Mapping[str, str], report: Mapping[str, Any]
) -> list[str]:
    """Write one table; nothing if nothing of it was measured."""
    runs = report["runs"]
    found = [place for place in places if any(k.startswith(f"{place} ") for k in runs)]
    peers = {
        name: peer
        for name, peer in report["peers"].items()
        if places is STORES or peer["store"] in places
    }
    heads = ["", *(f"{places[place]} (goal)" for place in found), "peers"]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for row in rows:
        cells = [_cell(row, place, runs) for place in found]
        if any(cells):
            beside = _beside(row, places, runs, peers)
            lines.append(_line([row.title, *cells, beside]))
    return lines if found or places is STORES else []


def _origin(report: Mapping[str, Any]) -> str:
    machine = report["machine"]
    servers = "".join(f", {name} {told}" for name, told in machine["versions"].items())
    return (
        f"One run on {machine['cores']} cores{servers}; "
        f"median [lowest–highest] of {report['reps']}. "
        "Peers were measured in the same run but for those *on record*. × says how "
        "many times better ours is on the same server; in the first table ours is that "
        "on PostgreSQL for peers on Redis and RabbitMQ."
    )


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(row: Row, store: str, runs: Runs) -> str:
    values = values_of(row, store, runs)
    if not values:
        return ""
    if store not in row.goals:
        return _spread(values)
    middle, goal = statistics.median(values), row.goals[store]
    is_met = middle >= goal if row.is_higher_better else middle <= goal
    sign = "≥" if row.is_higher_better else "≤"
    return f"{_spread(values)} ({sign} {goal:,g}{'' if is_met else ', missed'})"


def values_of(row: Row, store: str, runs: Runs) -> list[float]:
    """Return a row's figure of every repetition on a store."""
    found = runs.get(f"{store} {row.name}", [])
    return [run[row.figure] for run in found if row.figure in run]


def _spread(values: Sequence[float]) -> str:
    middle, low, high = (_short(f(values)) for f in (statistics.median, min, max))
    return f"**{middle}** [{low}–{high}]"


def _short(value: float) -> str:
    return f"{round(value):,}" if value >= THOUSAND else f"{value:g}"


def _beside(
    row: Row, places: Mapping[str, str], runs: Runs, peers: Mapping[str, Any]
) -> str:
    told = []
    for name, peer in peers.items():
        theirs = [
            run[row.peer_figure] for run in runs[f"peer {name}"] if row.peer_figure
        ]
        if theirs:
            middle = statistics.median(theirs)
            ratio = _ratio(row, ours_beside(peer["store"], places), runs, middle)
            told.append(f"{peer['title']} {_short(middle)}{ratio}")
    for title, figure in row.record.items():
        ratio = _ratio(row, ours_beside(title, places), runs, figure)
        told.append(f"*on record:* {title} {_short(figure)}{ratio}")
    return "<br>".join(told)


def ours_beside(told: str, places: Mapping[str, str]) -> str:
    """Say which of our places a peer is compared with; `told` says where it runs."""
    named = [place for place in places if place in told.lower()]
    return named[0] if named else POSTGRES


def _ratio(row: Row, place: str, runs: Runs, theirs: float) -> str:
    ours = values_of(row, place, runs)
    if not ours:
        return ""
    middle = statistics.median(ours)
    return f": {middle / theirs if row.is_higher_better else theirs / middle:.1f} ×"


BEGIN, END = "<!-- bench -->", "<!-- /bench -->"


def replaced(page: str, table: str) -> str:
    """Put the table between the marks of a page."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}{table}{END}{after}"
