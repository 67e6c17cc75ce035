"""
A hundred open pages, for `bench.dashboard`.

Either all show the Overview to one key, or they show four views to many keys, so that
few of them can share an answer. Each holds a stream and reads what its view reads, as
often as the view does: when an event has come, and at most that often. A page has two
connections and parses nothing but what it needs, so that it does not take the CPU that
is measured.
"""

import asyncio
import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import psutil

PAGES: Final = 100
OPEN_SECONDS: Final = 20.0
SPREAD_SECONDS: Final = 10.0
"""Pages are opened one after the other within this time."""
FIRST_SECONDS: Final = 3.0
MINUTES: Final = 30
TICK: Final = 10.0
"""How often the charts are read, in seconds; browsers are not in step."""

# What `pages/ui/overview.js` reads, and at most how often, in seconds.
_TILES: Final = {
    f"/v1/jobs/count?state={state}": 2.0
    for state in ("queued", "running", "scheduled", "failed")
}
_NEWS: Final = {
    "/v1/jobs?state=running&sort=oldest&limit=100": 3.0,
    "/v1/dead-letters?limit=5": 5.0,
    "/v1/budgets": 10.0,
    "/v1/questions?limit=10": 10.0,
    "/v1/jobs?capability=webhook.deliver&state=failed&limit=10": 10.0,
    "/v1/jobs?limit=1": 5.0,
}
_OLDEST: Final = {"/v1/jobs?state=queued&sort=oldest&limit=20": 2.0}
_FLEET: Final = {"/v1/queues": 3.0, "/v1/workers": 10.0, "/v1/lanes": 10.0}
LIVE: Final = _TILES | _NEWS | _OLDEST | _FLEET
"""What it reads for anybody: a user sees no fleet, an operator no oldest job."""


NOTHING: Final[Mapping[str, float]] = {}


class View(NamedTuple):
    """What a page shows, to whom."""

    name: str
    key: str
    shared: Mapping[str, float]
    """What it reads, and may be a second old; at most how often, in seconds."""
    whole: Mapping[str, float] = NOTHING
    """What it reads anew each time."""
    everyone: str = ""
    """Makes the charts those of the whole tenant."""
    has_charts: bool = False


def overview(key: str, *, is_operator: bool) -> View:
    """Return the Overview as a key sees it."""
    more = _FLEET if is_operator else _OLDEST
    everyone = "&everyone=true" if is_operator else ""
    return View(
        "overview", key, _TILES | _NEWS | more, NOTHING, everyone, has_charts=True
    )


def jobs(key: str) -> View:
    """Return the list of jobs."""
    return View("jobs", key, {"/v1/jobs?limit=50": 2.0, "/v1/jobs/count": 2.0})


def job(key: str, job: str) -> View:
    """Return the page of a job that waits."""
    return View("job", key, {f"/v1/jobs/{job}/waiting": 3.0})


def fleet(key: str) -> View:
    """Return the Fleet with the webhooks that could not be delivered."""
    shared = {
        "/v1/queues": 2.0,
        "/v1/workers": 5.0,
        "/v1/schedules": 10.0,
        "/v1/endpoints?limit=50": 10.0,
    }
    failed = "/v1/jobs?capability=webhook.deliver&state=failed&limit=20"
    return View("fleet", key, shared, {failed: 3.0})


CHARTS: Final = (
    "/v1/activity?since={since}",
    "/v1/usage?by=minute&limit=100&since={since}{everyone}",
)

Lines = asyncio.StreamReader


class Connection:
    """One connection to the server, which is kept open."""

    def __init__(self, address: str, key: str) -> None:
        split = urlsplit(address)
        self._host, self._port = split.hostname, split.port
        self._head = f"Host: {split.netloc}\r\nAuthorization: Bearer {key}\r\n"
        self._lock = asyncio.Lock()
        self._opened: tuple[Lines, asyncio.StreamWriter] | None = None

    async def get(self, path: str, *, is_shared: bool) -> bool:
        """Read something, which may be a second old; say whether it was given."""
        age = "Cache-Control: max-age=1\r\n" if is_shared else ""
        return await self._whole(f"GET {path}", b"", age)

    async def post(self, path: str, content: Any) -> None:
        """Send something, and forget the answer."""
        await self._whole(f"POST {path}", json.dumps(content).encode())

    async def follow(self, path: str, heard: Callable[[int], None]) -> None:
        """Say for each part of a stream how many events are in it, for ever."""
        reader, _ = await self._asked(f"GET {path}", b"")
        if not (await _answer(reader))[0]:
            raise ConnectionError("the stream was refused")
        while found := await reader.read(65_536):
            if events := found.count(b"\ndata: "):
                heard(events)
        raise ConnectionError("the stream ended")

    async def _whole(self, line: str, body: bytes, more: str = "") -> bool:
        async with self._lock:
            reader, _ = await self._asked(line, body, more)
            is_given, length = await _answer(reader)
            await reader.readexactly(length)
            return is_given

    async def _asked(
        self, line: str, body: bytes, more: str = ""
    ) -> tuple[Lines, asyncio.StreamWriter]:
        if self._opened is None:
            self._opened = await asyncio.open_connection(self._host, self._port)
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        kind = "Content-Type: application/json\r\n" if body else ""
        head = f"{line} HTTP/1.1\r\n{self._head}{more}{kind}{length}\r\n"
        self._opened[1].write(head.encode() + body)
        return self._opened

    def close(self) -> None:
        """Close it, if it was opened."""
        if self._opened is not None:
            self._opened[1].close()


async def _answer(reader: Lines) -> tuple[bool, int]:
    """Read the head of an answer; say whether it is good, and how long the rest is."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = head.partition("content-length: ")[2].partition("\r\n")[0]
    return head.partition(" ")[2].startswith("20"), int(length or 0)


class OpenPage:
    """A tab with a view."""

    def __init__(self, address: str, view: View) -> None:
        self.view = view
        self.reads = 0
        self.refused = 0
        self.events = 0
        self.slowest = 0.0
        self._reader = Connection(address, view.key)
        self._stream = Connection(address, view.key)
        self._changed = asyncio.Event()

    async def stay(self, after: float) -> None:
        """Follow the stream and read again after a while, until it is cancelled."""
        await asyncio.sleep(after)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._stream.follow("/v1/events", self._hear))
                if self.view.has_charts:
                    group.create_task(self._chart())
                for path, wait in self.view.shared.items():
                    group.create_task(self._live(path, wait, is_shared=True))
                for path, wait in self.view.whole.items():
                    group.create_task(self._live(path, wait, is_shared=False))
        finally:
            self._reader.close()
            self._stream.close()

    def _hear(self, events: int) -> None:
        self.events += events
        self._changed.set()
        self._changed = asyncio.Event()  # whoever waits for the former one goes on

    async def _live(self, path: str, wait: float, *, is_shared: bool) -> None:
        while True:
            changed = self._changed
            begun = time.monotonic()
            await self._read(path, is_shared=is_shared)
            await changed.wait()
            await asyncio.sleep(max(0.0, begun + wait - time.monotonic()))

    async def _chart(self) -> None:
        minutes = MINUTES
        while True:
            since = written((time.time() // 60 - minutes + 1) * 60)
            for chart in CHARTS:
                path = chart.format(since=since, everyone=self.view.everyone)
                await self._read(path, is_shared=True)
            minutes = 2  # the rest is known
            await asyncio.sleep(TICK)

    async def _read(self, path: str, *, is_shared: bool) -> None:
        begun = time.monotonic()
        self.refused += not await self._reader.get(path, is_shared=is_shared)
        self.reads += 1
        self.slowest = max(self.slowest, time.monotonic() - begun)


def written(at: float) -> str:
    """Write a time as the API takes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


async def pages(
    address: str,
    views: Sequence[View],
    processes: Mapping[str, Callable[[], list[psutil.Process]]],
    rate: float,
) -> dict[str, Any]:
    """Hold pages open while jobs run; return how many cores each process takes."""
    await _open_first(address, views[0].key)
    tabs = [OpenPage(address, view) for view in views]
    senders = [Connection(address, key) for key in {view.key for view in views}]
    opened = [
        asyncio.create_task(tab.stay(SPREAD_SECONDS * place / len(tabs)))
        for place, tab in enumerate(tabs)
    ]
    opened.append(asyncio.create_task(_submit(senders, rate)))
    try:
        await _unless_ended(opened, asyncio.sleep(2 * SPREAD_SECONDS))
        for tab in tabs:
            tab.reads, tab.refused, tab.events, tab.slowest = 0, 0, 0, 0.0
        before, begun = _used(processes), time.monotonic()
        await _unless_ended(opened, asyncio.sleep(OPEN_SECONDS))
        wall = time.monotonic() - begun
        used = {name: taken - before[name] for name, taken in _used(processes).items()}
    finally:
        for task in opened:
            task.cancel()
        await asyncio.gather(*opened, return_exceptions=True)
        for sender in senders:
            sender.close()
    return {
        "open_pages": dict(Counter(view.name for view in views)),
        "keys": len({view.key for view in views}),
        "jobs_per_second": rate,
        "cores": {name: round(taken / wall, 2) for name, taken in used.items()},
        "requests_per_second": round(sum(tab.reads for tab in tabs) / wall, 1),
        "refused": sum(tab.refused for tab in tabs),
        "events_per_second": round(sum(tab.events for tab in tabs) / wall, 1),
        "slowest_ms": round(1000 * max(tab.slowest for tab in tabs), 1),
    }


async def _submit(senders: Sequence[Connection], rate: float) -> None:
    due = time.monotonic()
    for sender in itertools.cycle(senders):
        await sender.post("/v1/jobs", {"capability": "demo.echo", "input": {}})
        due += 1 / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def _open_first(address: str, key: str) -> None:
    """
    Open a stream and close it again.

    On PostgreSQL the first one after a start may begin with the oldest event, because
    the server does not know yet up to where the log is complete.
    """
    first = Connection(address, key)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_SECONDS):
            await first.follow("/v1/events", lambda _: None)
    first.close()


async def _unless_ended(tasks: list[asyncio.Task[None]], wait: Awaitable[None]) -> None:
    """Wait; raise what ended a page that should have stayed open."""
    waiting = asyncio.ensure_future(wait)
    done, _ = await asyncio.wait([waiting, *tasks], return_when="FIRST_COMPLETED")
    for ended in done - {waiting}:
        ended.result()
    await waiting


def _used(
    processes: Mapping[str, Callable[[], list[psutil.Process]]],
) -> dict[str, float]:
    return {
        name: sum(sum(process.cpu_times()[:2]) for process in found())
        for name, found in processes.items()
    }
