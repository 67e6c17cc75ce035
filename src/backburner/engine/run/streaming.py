"""
Sends progress and streamed text of running handlers to the store.

What is emitted within a moment is stored together, in order, once, and before the
attempt is settled. Only the latest progress is stored, but every character of text.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import orjson

from backburner.domain.errors import StoreUnavailable
from backburner.domain.events.event import DELTA, PROGRESS
from backburner.domain.events.text import deltas
from backburner.domain.jobs.job import Claim, Instant
from backburner.engine.loop import Loop
from backburner.engine.sending import send_all
from backburner.ports.clock import Clock
from backburner.ports.log import log
from backburner.ports.notifier import Notification, Notifier
from backburner.ports.store.events import EventLog, Note

MOMENT_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 0.2
IDLE_SECONDS: Final = 60.0
MOST_UNTOLD: Final = 262_144
"""How many characters a handler may be ahead of the store before it waits."""


class OutputSink(Protocol):
    """Receives the output of runs."""

    def hear(self, output_stream: "OutputStream") -> None:
        """Note that a stream has something new to store."""
        ...

    def hurry(self) -> None:
        """Note that a handler waits until its output is stored."""
        ...


class OutputStream:
    """The output of one attempt: progress, text and other events."""

    __slots__ = (
        "_claim",
        "_earlier",
        "_fault",
        "_length",
        "_marks",
        "_n",
        "_noted",
        "_notes",
        "_output_sink",
        "_pieces",
        "_progress",
        "_replaces",
        "_told",
        "_untold",
    )

    def __init__(self, claim: Claim, output_sink: OutputSink) -> None:
        self._claim = claim
        self._output_sink = output_sink
        self._n = claim.events
        self._pieces: list[str] = []
        self._length = 0
        self._untold: list[str] = []
        self._noted = 0
        """How many characters of the text are in notes that were built so far."""
        self._earlier: str | None = None
        """The text of an earlier attempt, as long as this one repeats it."""
        self._replaces = False
        self._progress: Mapping[str, Any] | None = None
        self._marks: list[tuple[str, Mapping[str, Any]]] = []
        """Events that are neither text nor progress."""
        self._notes: Sequence[Note] = ()
        """Notes that are being stored; they do not change until they are stored."""
        self._told = asyncio.Event()
        self._fault: Exception | None = None

    @property
    def text(self) -> str:
        """All text emitted so far."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def report(self, progress: Mapping[str, Any]) -> None:
        """Record the progress."""
        self._progress = progress
        self._output_sink.hear(self)

    def mark(self, kind: str, data: Mapping[str, Any]) -> None:
        """Add an event of another type."""
        self._marks.append((kind, data))
        self._output_sink.hear(self)

    def say(self, text: str) -> None:
        """Emit text; raise if it cannot be stored."""
        text.encode()
        if not text:
            return
        self._pieces.append(text)
        self._length += len(text)
        if self._earlier is not None:
            text = self._news_of(text, self._earlier)
        if text:
            self._untold.append(text)
            self._output_sink.hear(self)

    def follow(self, earlier: str) -> None:
        """Continue the text of an earlier attempt; call this before emitting any."""
        self._earlier = earlier or None

    def _news_of(self, text: str, earlier: str) -> str:
        """Return the part of a text that readers lack; all of it if it differs."""
        begun = self._length - len(text)
        if earlier.startswith(text, begun):
            self._noted = self._length
            return ""
        self._earlier = None
        if text.startswith(earlier[begun:]):
            self._noted = len(earlier)
            return text[len(earlier) - begun :]
        self._noted, self._replaces = 0, True
        return self.text

    def finish(self) -> None:
        """Remove text of an earlier attempt that this one did not repeat."""
        earlier, self._earlier = self._earlier, None
        if earlier is not None and 0 < self._length < len(earlier):
            self._untold, self._noted, self._replaces = [self.text], 0, True
            self._output_sink.hear(self)

    def conclude(self, result: str) -> None:
        """Make the text equal to the result, if any text was emitted."""
        if not self._length:
            return
        if result.startswith(self.text):
            self.say(result[self._length :])
            return
        self._earlier = None
        self._pieces, self._untold = [result], [result]
        self._length, self._replaces = len(result), self._noted > 0
        self._noted = 0
        self._output_sink.hear(self)

    def notes(self, at: Instant) -> Sequence[Note]:
        """Return the new output as notes; the same ones until `heard` is called."""
        if not self._notes:
            self._notes = [
                Note(self._claim.seq, self._claim.token, n, at, kind, _json(data))
                for n, (kind, data) in enumerate(self._news(), self._n + 1)
            ]
        return self._notes

    def heard(self, fault: Exception | None = None) -> None:
        """Record that the notes are stored, or why they cannot be."""
        self._n += len(self._notes)
        self._notes = ()
        self._fault = self._fault or fault
        self._told.set()

    def drain(self, at: Instant) -> Sequence[Note]:
        """Return the new output and mark it as stored: for runs without a store."""
        notes = self.notes(at)
        self.heard()
        return notes

    async def told(self, *, but_for: int = 0) -> None:
        """Return when the output is stored, except for up to `but_for` characters."""
        while self._fault is None and self._is_ahead(but_for):
            self._told.clear()
            self._output_sink.hurry()
            await self._told.wait()
        if self._fault is not None:
            raise self._fault

    @property
    def has_news(self) -> bool:
        """Whether there is output that is not stored."""
        return bool(self._notes or self._untold or self._progress or self._marks)

    def _is_ahead(self, allowed: int) -> bool:
        return self._length - self._noted > allowed if allowed else self.has_news

    def _news(self) -> Iterable[tuple[str, Mapping[str, Any]]]:
        marks, self._marks = self._marks, []
        yield from marks
        text, self._untold = "".join(self._untold), []
        if text or self._replaces:
            offset, epoch = self._noted, self._claim.events
            self._noted += len(text)
            for data in deltas(
                text, epoch=epoch, offset=offset, replaces=self._replaces
            ):
                yield DELTA, data
            self._replaces = False
        progress, self._progress = self._progress, None
        if progress is not None:
            yield PROGRESS, progress


class NoOutput:
    """An `OutputSink` that discards its input."""

    def hear(self, output_stream: OutputStream) -> None:
        output_stream.drain(0)

    def hurry(self) -> None: ...


class StreamWriter:
    """Writes the output streams of this process to the store."""

    def __init__(self, events: EventLog, notifier: Notifier, clock: Clock) -> None:
        self._events = events
        self._notifier = notifier
        self._clock = clock
        # In the order of arrival, so that a simulation can be replayed.
        self._output_streams: dict[OutputStream, None] = {}
        self._hurry = asyncio.Event()
        self._loop = Loop("worker-telling", self._tell, every=IDLE_SECONDS)

    def start(self) -> None:
        """Start writing."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop writing; handlers that wait for it get an error."""
        await self._loop.stop()
        for output_stream in self._output_streams:
            output_stream.heard(StoreUnavailable("the worker has stopped"))

    def hear(self, output_stream: OutputStream) -> None:
        self._output_streams[output_stream] = None
        self._loop.poke()

    def hurry(self) -> None:
        self._hurry.set()
        self._loop.poke()

    async def _tell(self) -> float | None:
        output_streams = tuple(self._output_streams)
        if not output_streams:
            return None
        try:
            await send_all(output_streams, self._report, self._refuse)
        except StoreUnavailable as error:
            log.warning("report failed", code=error.code, count=len(output_streams))
            await asyncio.sleep(RETRY_SECONDS)  # noqa: TID251 - see watch
            return 0.0
        with suppress(TimeoutError):
            async with asyncio.timeout(MOMENT_SECONDS):
                await self._hurry.wait()
        self._hurry.clear()
        return 0.0 if self._output_streams else None

    async def _report(self, output_streams: Iterable[OutputStream]) -> None:
        now = self._clock.now()
        await self._events.report(
            [note for v in output_streams for note in v.notes(now)]
        )
        self._notifier.notify(Notification.EVENTS)
        for output_stream in output_streams:
            self._let_go(output_stream)

    def _refuse(self, output_stream: OutputStream, error: Exception) -> None:
        """Fail the attempt whose output the store refuses."""
        log.error("report failed", error_type=type(error).__name__)
        self._let_go(output_stream, error)

    def _let_go(
        self, output_stream: OutputStream, fault: Exception | None = None
    ) -> None:
        output_stream.heard(fault)
        if not output_stream.has_news:
            del self._output_streams[output_stream]


def _json(data: Mapping[str, Any]) -> str:
    return orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS).decode()
