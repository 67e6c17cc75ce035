"""The rows of the benchmark, their goals, and the tables made from a run. No I/O."""

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
BROKERS = {RABBITMQ: "RabbitMQ", REDIS: "Redis", SQS: "SQS (moto)"}
"""Transports besides the database; with each of them the store is PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: its name, the figure to show, and its goals."""

    name: str
    title: str
    figure: str
    goals: Mapping[str, float]
    is_higher_better: bool = True
    peer_figure: str | None = None
    """Name of the competitors' figure to compare with."""
    record: Mapping[str, float] = field(default_factory=dict)
    """Figures of competitors from earlier runs, which this run does not measure."""


def _both(goal: float) -> dict[str, float]:
    return dict.fromkeys(STORES, goal)


SENTENCES = (
    Row(
        "sentences",
        "sentences turned into tasks by two services and a worker, tasks/s",
        "per_second",
        {},
    ),
    Row(
        "sentences",
        "… submit to finished task, 20 at a time, p99 ms",
        "p99_ms",
        {},
        is_higher_better=False,
    ),
    Row(
        "sentences",
        "… one at a time, mean ms",
        "singly_ms",
        {},
        is_higher_better=False,
    ),
    Row(
        "sentences",
        "… share of that time spent outside the model call",
        "ours_of_time",
        {},
        is_higher_better=False,
    ),
    Row(
        "sentences",
        "… CPU per sentence, all three processes, µs",
        "cpu_us",
        {},
        is_higher_better=False,
    ),
    Row(
        "sentences",
        "… share of that CPU spent outside the model SDK",
        "ours_of_cpu",
        {},
        is_higher_better=False,
    ),
)
ANY_STORE = frozenset({"blobs_s3", "embedding", "uploads_limited"})
"""Rows that take minutes and on which the database has no influence: run on one."""
WITH_PGVECTOR = frozenset({"searches"})
"""Rows that run on the PostgreSQL server that has pgvector, if there is one."""

DISCORD_LIMIT = dict.fromkeys((SQLITE, POSTGRES, *BROKERS), 3_000.0)
"""Discord waits for three seconds."""
RETRIEVAL = (
    Row(
        "searches",
        "search 100,000 chunks of one user, including the embedding, p95 ms",
        "p95_ms",
        _both(100),
        is_higher_better=False,
    ),
    Row("searches", "… p50, ms", "p50_ms", {}, is_higher_better=False),
    Row(
        "searches",
        "… first search, which loads the vectors, ms",
        "first_ms",
        {},
        is_higher_better=False,
    ),
    Row("searches", "… memory, MB", "rss_mb", {}, is_higher_better=False),
    Row(
        "searches",
        "… p95 with pgvector, ms",
        "pgvector_p95_ms",
        {POSTGRES: 100},
        is_higher_better=False,
    ),
    Row(
        "searches",
        "… p95 if the vectors do not fit in memory, by pgvector, ms",
        "in_database_p95_ms",
        {},
        is_higher_better=False,
    ),
    Row(
        "embedding", "chunks embedded by the offline model, chunks/s", "per_second", {}
    ),
    Row("embedding", "… CPU per chunk, µs", "cpu_us", {}, is_higher_better=False),
)
CONVERSATIONS = (
    Row(
        "conversations",
        "messages answered by `chat`, one server and one worker, replies/s",
        "per_second",
        {},
    ),
    Row(
        "conversations",
        "… request to reply, 20 at a time, p99 ms",
        "p99_ms",
        {},
        is_higher_better=False,
    ),
    Row(
        "conversations",
        "… CPU per reply, both processes, µs",
        "cpu_us",
        {},
        is_higher_better=False,
    ),
    Row(
        "deferrals",
        "Discord commands deferred while 200 jobs run, 20 at a time, p99 ms",
        "p99_ms",
        DISCORD_LIMIT,
        is_higher_better=False,
    ),
)

UPLOADS = (
    Row("uploads", "files processed by `documents`, files/s", "per_second", {}),
    Row(
        "uploads",
        "… confirm to ready, p95 ms",
        "p95_ms",
        {},
        is_higher_better=False,
    ),
    Row(
        "uploads",
        "… worker memory over 1,000 files, MB",
        "worker_mb",
        {},
        is_higher_better=False,
    ),
    Row("uploads", "… server memory, MB", "server_mb", {}, is_higher_better=False),
    Row(
        "uploads_limited",
        "the same with the default rate limits, confirm to ready, p95 ms",
        "p95_ms",
        {},
        is_higher_better=False,
    ),
)


ROWS = (
    Row(
        "drain",
        "no-op jobs run by one worker process, jobs/s",
        "per_second",
        {SQLITE: 12_000, POSTGRES: 10_000},
        peer_figure="per_second",
    ),
    Row(
        "drain",
        "… worker CPU per job, µs",
        "cpu_us",
        {SQLITE: 80, POSTGRES: 60},
        is_higher_better=False,
        peer_figure="cpu_us",
    ),
    Row(
        "drain_over_history",
        "the same with 1,000,000 finished jobs in the store, jobs/s",
        "per_second",
        {SQLITE: 10_800, POSTGRES: 9_000},
    ),
    Row("drain_over_history", "… as a share of the first row", "share", _both(0.9)),
    Row(
        "flows",
        "flows of three no-op steps in one batch, jobs/s",
        "per_second",
        {SQLITE: 9_600, POSTGRES: 8_000},
    ),
    Row("flows", "… as a share of the first row", "share", _both(0.8)),
    Row(
        "settled_with_bodies",
        "jobs that write a row in `ctx.at_settlement`, 20 slots, jobs/s",
        "per_second",
        {SQLITE: 2_000, POSTGRES: 2_000},
    ),
    Row(
        "settled_with_bodies",
        "… worker CPU per job, µs",
        "cpu_us",
        {},
        is_higher_better=False,
    ),
    Row(
        "steps",
        "store the results of steps, 200 jobs at once, steps/s",
        "per_second",
        _both(10_000),
    ),
    Row("steps", "… CPU a step, µs", "cpu_us", {}, is_higher_better=False),
    Row(
        "steps",
        "… a step of a job that runs alone, p50 ms",
        "alone_ms",
        _both(1.0),
        is_higher_better=False,
    ),
    Row(
        "signals",
        "signal to start, 10,000 waiting jobs, p50 ms",
        "p50_ms",
        _both(5.0),
        is_higher_better=False,
    ),
    Row(
        "signals",
        "… signal until the handler goes on, p50 ms",
        "resumed_ms",
        {},
        is_higher_better=False,
    ),
    Row(
        "signals",
        "… CPU of the idle worker, % of a core",
        "idle_cpu_percent",
        {},
        is_higher_better=False,
    ),
    Row(
        "signals",
        "… the same with no waiting job",
        "cpu_without_percent",
        {},
        is_higher_better=False,
    ),
    Row(
        "signals",
        "… memory more than with no waiting job, MB",
        "more_mb",
        {},
        is_higher_better=False,
    ),
    Row(
        "blobs",
        "write a blob of 1 GiB to a folder, hashed and fsynced, MiB/s",
        "write_mb",
        {},
    ),
    Row("blobs", "… read it back, MiB/s", "read_mb", {}),
    Row(
        "blobs",
        "… memory growth of the process, MiB",
        "growth_mb",
        _both(64),
        is_higher_better=False,
    ),
    Row(
        "blobs_s3",
        "write a blob of 1 GiB to S3 (moto), hashed, MiB/s",
        "write_mb",
        {},
    ),
    Row("blobs_s3", "… read it back, MiB/s", "read_mb", {}),
    Row(
        "blobs_s3",
        "… memory growth of the process, MiB",
        "growth_mb",
        _both(64),
        is_higher_better=False,
    ),
    Row(
        "loaded",
        "CPU of a job with budget, webhook and events, compared with a plain job",
        "multiple",
        _both(3.0),
        is_higher_better=False,
    ),
    Row(
        "loaded",
        "… CPU of the webhook delivery, a separate job, µs",
        "delivery_cpu_us",
        _both(4_000),
        is_higher_better=False,
    ),
    Row(
        "submit_singly",
        "submit, one job per call, 100 concurrent callers, jobs/s",
        "per_second",
        {SQLITE: 12_000, POSTGRES: 8_000},
    ),
    Row(
        "submit_bulk",
        "submit, 500 jobs per call, jobs/s",
        "per_second",
        {SQLITE: 25_000, POSTGRES: 20_000},
        peer_figure="submit_per_second",
    ),
    Row(
        "http",
        "HTTP `POST /v1/jobs`, 100 connections, requests/s",
        "per_second",
        _both(2_000),
    ),
    Row("http", "… p99, ms", "p99_ms", _both(100), is_higher_better=False),
    Row(
        "latency_here",
        "submit to start when idle, same process, p50 ms",
        "p50_ms",
        {SQLITE: 2.0, POSTGRES: 3.0},
        is_higher_better=False,
        record={"Huey on Redis": 1.1},
    ),
    Row(
        "latency_there",
        "submit to start when idle, separate worker process, p50 ms",
        "p50_ms",
        {SQLITE: 2.5, POSTGRES: 3.0},
        is_higher_better=False,
        record={"SAQ on Redis": 1.7, "SAQ on PostgreSQL": 5.5},
    ),
    Row(
        "latency_there",
        "… CPU of the idle worker, %",
        "idle_cpu_percent",
        _both(0.5),
        is_higher_better=False,
    ),
    Row(
        "owners",
        "first page of one owner among 10,000 owners with 1,000,000 jobs, slowest of "
        "three lists, compared with an otherwise empty table",
        "worst_ratio",
        _both(2.0),
        is_higher_better=False,
    ),
    Row("owners", "… list of jobs, ms", "jobs_ms", {}, is_higher_better=False),
    Row("owners", "… list of failures, ms", "failures_ms", {}, is_higher_better=False),
    Row("owners", "… list of events, ms", "events_ms", {}, is_higher_better=False),
    Row(
        "naps",
        "1,000 concurrent jobs of 1 s each, total s",
        "wall_s",
        _both(1.15),
        is_higher_better=False,
        record={"BullMQ on Redis (Node)": 1.19},
    ),
    Row(
        "naps",
        "… memory of the process, MB",
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
        "no-op jobs run by one worker process, jobs/s",
        "per_second",
        {RABBITMQ: 4_000, REDIS: 6_000},
        peer_figure="per_second",
    ),
    Row(
        "drain",
        "… worker CPU per job, µs",
        "cpu_us",
        {},
        is_higher_better=False,
        peer_figure="cpu_us",
    ),
    Row(
        "latency_there",
        "submit to start when idle, separate worker process, p50 ms",
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
    Row("latency_there", "… p99, ms", "p99_ms", {}, is_higher_better=False),
    Row(
        "latency_there",
        "… CPU of the idle worker, %",
        "idle_cpu_percent",
        {},
        is_higher_better=False,
    ),
    *SENTENCES,
    *CONVERSATIONS,
    *UPLOADS,
)
"""Rows measured with a broker; `ROWS` has those measured with the store alone."""


WITH_BROKER = "With a message broker, on PostgreSQL:"
SUMMARY = {
    ("drain", "per_second"): (
        *("huey-sqlite", "saq-postgres", "celery-rabbitmq", "bullmq-redis"),
    ),
    ("drain", "cpu_us"): ("huey-sqlite", "bullmq-redis", "celery-rabbitmq"),
    ("submit_bulk", "per_second"): ("huey-sqlite", "bullmq-redis", "celery-rabbitmq"),
    ("latency_there", "p50_ms"): (),
    ("naps", "wall_s"): (),
    ("naps", "rss_mb"): (),
}
"""The figures in the README, each with the competitors that are shown beside it."""


def named(names: set[str], rows: Sequence[Row] = ROWS) -> list[Row]:
    """Return the rows with these names, or all rows if no name is given."""
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
    """Return the tables of a run as Markdown, with the conditions of the run."""
    names = {row.name for row in rows}
    brokered = [row for row in BROKER_ROWS if row.name in names]
    by_broker = _table(brokered, BROKERS, report)
    parts = ["", _origin(report), "", *_table(rows, STORES, report), ""]
    return "\n".join(
        [*parts, *([WITH_BROKER, "", *by_broker, ""] if by_broker else [])]
    )


def _table(
    rows: Sequence[Row], places: Mapping[str, str], report: Mapping[str, Any]
) -> list[str]:
    """Return the lines of one table, none if nothing of it was measured."""
    runs = report["runs"]
    found = [place for place in places if any(k.startswith(f"{place} ") for k in runs)]
    peers = {
        name: peer
        for name, peer in report["peers"].items()
        if places is STORES or peer["store"] in places
    }
    heads = ["", *(f"{places[place]} (goal)" for place in found), "competitors"]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for row in rows:
        cells = [_cell(row, place, runs) for place in found]
        if any(cells):
            beside = _beside(row, places, runs, peers)
            lines.append(_line([row.title, *cells, beside]))
    return lines if found or places is STORES else []


def summarise(report: Mapping[str, Any]) -> str:
    """Return the short table of the README as Markdown: medians only."""
    runs = report["runs"]
    heads = ["", *STORES.values(), "competitors"]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for row in ROWS:
        names = SUMMARY.get((row.name, row.figure))
        if names is None:
            continue
        cells = [_middle(values_of(row, store, runs)) for store in STORES]
        peers = {n: peer for n, peer in report["peers"].items() if n in names}
        beside = ", ".join(_competitors(row, runs, peers))
        title = row.title
        if title.startswith("…"):
            title = f"{_subject(row)}: {title.removeprefix('… ')}"
        lines.append(_line([title, *cells, beside]))
    origin = (
        f"Medians of {report['reps']} runs on {_machine(report)}. {_source(report)} "
        "Figures marked *earlier* are from an earlier run."
    )
    return "\n".join(["", *lines, "", origin, ""])


def _subject(row: Row) -> str:
    """Return what the first row of the same name measures, without its unit."""
    first = next(other for other in ROWS if other.name == row.name)
    return first.title.rpartition(",")[0]


def _middle(values: Sequence[float]) -> str:
    return f"**{_short(statistics.median(values))}**" if values else ""


def _competitors(row: Row, runs: Runs, peers: Mapping[str, Any]) -> list[str]:
    """List competitors and their figures, without a comparison."""
    measured = [
        f"{peer['title']} {_short(_median_of(row, name, runs))}"
        for name, peer in peers.items()
        if runs[f"peer {name}"]
    ]
    return measured + [
        f"{name} {_short(n)} *(earlier)*" for name, n in row.record.items()
    ]


def _median_of(row: Row, peer: str, runs: Runs) -> float:
    return statistics.median(run[row.peer_figure] for run in runs[f"peer {peer}"])


def _origin(report: Mapping[str, Any]) -> str:
    return (
        f"One run on {_machine(report)}; median [lowest–highest] of {report['reps']}. "
        f"{_source(report)} Competitors were measured in the same run, except those "
        "marked *earlier*. × is how many times better Backburner is with the same "
        "server; in the first table, competitors on Redis and RabbitMQ are compared "
        "with Backburner on PostgreSQL."
    )


def _machine(report: Mapping[str, Any]) -> str:
    machine = report["machine"]
    versions = (f", {name} {version}" for name, version in machine["versions"].items())
    return f"{machine['cores']} cores{''.join(versions)}"


def _source(report: Mapping[str, Any]) -> str:
    return f"Measured on {report['date']} at commit {report['commit']}."


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
    shown = []
    for name, peer in peers.items():
        if row.peer_figure and runs[f"peer {name}"]:
            middle = _median_of(row, name, runs)
            ratio = _ratio(row, ours_beside(peer["store"], places), runs, middle)
            shown.append(f"{peer['title']} {_short(middle)}{ratio}")
    for title, figure in row.record.items():
        ratio = _ratio(row, ours_beside(title, places), runs, figure)
        shown.append(f"*earlier:* {title} {_short(figure)}{ratio}")
    return "<br>".join(shown)


def ours_beside(server: str, places: Mapping[str, str]) -> str:
    """Return the store or broker to compare a competitor on `server` with."""
    named = [place for place in places if place in server.lower()]
    return named[0] if named else POSTGRES


def _ratio(row: Row, place: str, runs: Runs, theirs: float) -> str:
    ours = values_of(row, place, runs)
    if not ours:
        return ""
    middle = statistics.median(ours)
    return f": {middle / theirs if row.is_higher_better else theirs / middle:.1f} ×"


BEGIN, END = "<!-- bench -->", "<!-- /bench -->"


def replaced(page: str, table: str) -> str:
    """Return the page with the table between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}{table}{END}{after}"
