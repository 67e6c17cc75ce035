"""`backburner top`: queues, workers, lanes and failures, live in a terminal."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, NamedTuple, TypeVar

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from backburner.cli import printing
from backburner.cli.asking import KeyOption, UrlOption, connect, now
from backburner.client import Client, Denied, FailureGroup, Lane, Queue, Worker
from backburner.client.errors import Unavailable

try:
    import termios
    import tty
except ImportError:  # pragma: no cover - not on Windows
    HAS_TERMIOS = False
else:
    HAS_TERMIOS = True

T = TypeVar("T")

MOST = 50
"""The maximum number of rows that are read for each part."""
SMALL = 10
"""Rates below this are shown with a decimal."""
PLAIN_WIDTH = 120
"""The width of a frame that is written to a file or pipe."""
KEYS = {"q", "Q", "\x03", "\x04", "\x1b"}
"""The keys that quit: q, Ctrl-C, Ctrl-D and Escape."""


@dataclass
class Frame:
    """The state of the server at one time."""

    queues: Sequence[Queue] | None = None
    """`None` if the key may not see them."""
    workers: Sequence[Worker] | None = None
    lanes: Sequence[Lane] | None = None
    failures: Sequence[FailureGroup] | None = None
    problem: str = ""
    """Why the server could not be read since then."""


def top(
    *,
    every: Annotated[
        float,
        typer.Option(min=0.5, metavar="SECONDS", help="Refresh interval."),
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one frame and exit.")
    ] = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Show queues, workers, lanes and failures live. Press q to quit."""
    with connect(url, api_key) as client:
        first = _read(client)
        if once or not (sys.stdin.isatty() and sys.stdout.isatty() and HAS_TERMIOS):
            console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
            console.print(_drawn(first, _Size(console.width, 4 * MOST)))
            return
        _watch(client, first, every)


def _watch(client: Client, first: Frame, every: float) -> None:
    console = Console()
    shown = first
    with (
        _keys() as pressed,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            size = _Size(console.width, console.height)
            live.update(_drawn(shown, size), refresh=True)
            due = time.monotonic() + every
            while (left := due - time.monotonic()) > 0:
                key = pressed(left)
                if key in KEYS:
                    return
                if console.size != (size.width, size.height):
                    break
            else:
                try:
                    shown = _read(client)
                except Unavailable as error:
                    shown.problem = str(error)


@contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """Provide a function that reads pressed keys, which are not echoed."""
    descriptor = sys.stdin.fileno()
    earlier = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def pressed(seconds: float) -> str | None:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        if not ready:
            return None
        read = os.read(descriptor, 64)
        # Reading from a closed terminal returns nothing, again and again.
        return read.decode(errors="replace")[:1] if read else "q"

    try:
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, earlier)


def _read(client: Client) -> Frame:
    frame = Frame()
    frame.queues = _seen(client.queues)
    frame.workers = _seen(client.workers)
    frame.lanes = _seen(client.lanes)
    frame.failures = _seen(lambda: list(islice(client.failures(), MOST)))
    return frame


def _seen(read: Callable[[], T]) -> T | None:
    with suppress(Denied):
        return read()
    return None


class _Size:
    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height


class _Part(NamedTuple):
    """A part of a frame."""

    name: str
    items: Sequence[Any] | None
    """`None` if the key may not see them."""
    headings: Sequence[str]
    row: Callable[[Any], Sequence[Any]]
    weight: int = 1
    """How much of the height it gets, relative to the others."""

    @property
    def fixed(self) -> int:
        """How many lines it needs besides its rows: title, headings, blank line."""
        return 3 if self.items else 2


def _drawn(frame: Frame, size: _Size) -> RenderableType:
    """Draw a frame: each part gets its share of the height."""
    parts = [
        _Part("Queues", _busiest(frame.queues), QUEUES, _queue_row, weight=2),
        _Part("Workers", frame.workers, WORKERS, _worker_row),
        _Part("Lanes", _fullest(frame.lanes), LANES, _lane_row),
        _Part("Dead letters", frame.failures, FAILURES, _failure_row),
    ]
    # The frame has a first line; below the last part, none is blank.
    room = size.height - sum(part.fixed for part in parts)
    drawn: list[RenderableType] = [_title(frame)]
    for part, shown in zip(parts, _shares(parts, room), strict=True):
        drawn.append(_heading(part, shown))
        if part.items:
            drawn.append(_table(part.headings, part.items[:shown], part.row))
        drawn.append("")
    return Group(*drawn[:-1])


def _shares(parts: Sequence[_Part], room: int) -> list[int]:
    """
    Divide lines among parts by their weights; return how many rows each one shows.

    A part gets no more than it has rows, the others what it leaves, and each of them
    at least one.
    """
    shares, weights = [0] * len(parts), sum(part.weight for part in parts)
    counts = [len(part.items or ()) for part in parts]

    def by_need(place: int) -> float:
        return counts[place] / parts[place].weight

    for place in sorted(range(len(parts)), key=by_need):
        weight = parts[place].weight
        shares[place] = min(counts[place], max(1, room * weight // weights))
        room, weights = room - shares[place], weights - weight
    return shares


def _busiest(queues: Sequence[Queue] | None) -> Sequence[Queue] | None:
    """Return queues in the order of their activity, then of their failures."""

    def key(queue: Queue) -> tuple[float, int, str]:
        rates = queue["submitted_per_minute"] + queue["ended_per_minute"]
        activity = queue["running"] + queue["queued"] + rates
        return -activity, -queue["totals"]["failed"], queue["name"]

    return None if queues is None else sorted(queues, key=key)


def _fullest(lanes: Sequence[Lane] | None) -> Sequence[Lane] | None:
    """Return lanes in the order of how many calls wait for them, then are made."""

    def key(lane: Lane) -> tuple[int, int, str]:
        return -lane["waiting"], -lane["in_use"], lane["name"]

    return None if lanes is None else sorted(lanes, key=key)


def _title(frame: Frame) -> Text:
    title = Text("backburner top", style="bold")
    title.append(f"  {now():%H:%M:%S} UTC  q quits", style="dim")
    if frame.problem:
        title.append(f"  {printing.clean(frame.problem)}", style="bold red")
    return title


def _heading(part: _Part, shown: int) -> Text:
    heading = Text(part.name, style="bold")
    if part.items is None:
        return heading.append("  this key may not see them", style="not bold")
    count = len(part.items)
    more = f", {count - shown} not shown" if count > shown else ""
    return heading.append(f"  {count or 'none'}{more}", style="dim")


def _table(
    headings: Sequence[str],
    rows: Sequence[Any],
    row: Callable[[Any], Sequence[Any]],
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    for heading in headings:
        is_number = heading.startswith("#")
        name = heading.lstrip("#")
        table.add_column(
            _cell(name),
            justify="right" if is_number else "left",
            # In a narrow terminal, Rich narrows the other columns first, as their
            # cells, which do not wrap, are cut.
            no_wrap=is_number or name == "state",
        )
    for each in rows:
        table.add_row(*map(_cell, row(each)))
    return table


def _cell(value: Any) -> Text:
    if isinstance(value, Text):
        text = value
    elif isinstance(value, int):
        text = Text(f"{value:,}", style="" if value else "dim")
    else:
        text = Text("-" if value is None else printing.clean(value))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


QUEUES = (
    "queue",
    "#queued",
    "#running",
    "#scheduled",
    "#in/min",
    "#out/min",
    "#failed",
    "state",
)
WORKERS = (
    "worker",
    "host",
    "#pid",
    "#jobs",
    "#slots",
    "#lag ms",
    "#MB",
    "state",
    "queues",
)
LANES = ("lane", "state", "#waiting", "#in use", "#calls/min", "parked until")
FAILURES = ("cause", "capability", "#jobs", "last")


def _queue_row(queue: Queue) -> Sequence[Any]:
    state = "limited" if queue["limited_until"] else "open"
    return (
        queue["name"],
        queue["queued"],
        queue["running"],
        queue["scheduled"],
        _rate(queue["submitted_per_minute"]),
        _rate(queue["ended_per_minute"]),
        queue["totals"]["failed"],
        Text("paused", style="yellow") if queue["paused"] else state,
    )


def _rate(per_minute: float) -> Text:
    shown = f"{per_minute:,.1f}" if 0 < per_minute < SMALL else f"{per_minute:,.0f}"
    return Text(shown, style="" if per_minute else "dim")


def _worker_row(worker: Worker) -> Sequence[Any]:
    drains = worker["draining"]
    lag, memory = worker["event_loop_lag_seconds"], worker["memory_bytes"]
    return (
        worker["id"],
        worker["host"],
        str(worker["pid"]),
        worker["running"],
        worker["slots"],
        None if lag is None else round(lag * 1000),
        None if memory is None else round(memory / 1e6),
        Text("draining", style="yellow") if drains else "working",
        ", ".join(worker["queues"]),
    )


def _lane_row(lane: Lane) -> Sequence[Any]:
    is_open = lane["state"] == "open"
    return (
        lane["name"],
        lane["state"] if is_open else Text(lane["state"], style="yellow"),
        lane["waiting"],
        lane["in_use"],
        f"{lane['pace']:.0f}",
        lane["parked_until"],
    )


def _failure_row(group: FailureGroup) -> Sequence[Any]:
    cause = Text(printing.clean(group["code"]), style="red")
    return cause, group["capability"], group["count"], group["last_at"]
