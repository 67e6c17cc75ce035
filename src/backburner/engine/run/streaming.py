"""
Sends progress and streamed text of running handlers to the store.

Whatever is said within a moment is told together, in order, once, and all of it before
the attempt that said it is settled. Of progress only the latest matters; of text every
character does.
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
"""Characters; a handler that is further ahead of the store waits for it."""


class OutputSink(Protocol):
    """Takes what a run writes."""

    def hear(self, output_stream: "OutputStream") -> None:
        """Be told that there is something new to tell."""
        ...

    def hurry(self) -> None:
        """Be told that somebody waits for it to be told."""
        ...


class OutputStream:
    """All that one attempt says."""

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
        """How many characters of the text are in notes, or were."""
        self._earlier: str | None = None
        """What readers have of an earlier attempt, while this one says the same."""
        self._replaces = False
        self._progress: Mapping[str, Any] | None = None
        self._marks: list[tuple[str, Mapping[str, Any]]] = []
        """Events that are neither text nor progress."""
        self._notes: Sequence[Note] = ()
        """What is under way to the store: it stays as it is until it is there."""
        self._told = asyncio.Event()
        self._fault: Exception | None = None

    @property
    def text(self) -> str:
        """All that was emitted."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def report(self, progress: Mapping[str, Any]) -> None:
        """Say how far it is."""
        self._progress = progress
        self._output_sink.hear(self)

    def mark(self, kind: str, data: Mapping[str, Any]) -> None:
        """Write an event of another type."""
        self._marks.append((kind, data))
        self._output_sink.hear(self)

    def say(self, text: str) -> None:
        """Say more of the text; what cannot be stored is the handler's own mistake."""
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
        """Take what readers have of an earlier attempt; nothing was said yet."""
        self._earlier = earlier or None

    def _news_of(self, text: str, earlier: str) -> str:
        """Return what of a text readers do not have; where it differs, all of it."""
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
        """Have readers drop what an earlier attempt said and this one did not."""
        earlier, self._earlier = self._earlier, None
        if earlier is not None and 0 < self._length < len(earlier):
            self._untold, self._noted, self._replaces = [self.text], 0, True
            self._output_sink.hear(self)

    def conclude(self, result: str) -> None:
        """Make the text equal to the result, if anything was said at all."""
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
        """Write down what is new; until it was heard, the same again."""
        if not self._notes:
            self._notes = [
                Note(self._claim.seq, self._claim.token, n, at, kind, _json(data))
                for n, (kind, data) in enumerate(self._news(), self._n + 1)
            ]
        return self._notes

    def heard(self, fault: Exception | None = None) -> None:
        """Be told that the notes are in the store, or why they never will be."""
        self._n += len(self._notes)
        self._notes = ()
        self._fault = self._fault or fault
        self._told.set()

    def drain(self, at: Instant) -> Sequence[Note]:
        """Take what is new as told: for those who have no store to tell."""
        notes = self.notes(at)
        self.heard()
        return notes

    async def told(self, *, but_for: int = 0) -> None:
        """Return when the store has all of it, or all but for so many characters."""
        while self._fault is None and self._is_ahead(but_for):
            self._told.clear()
            self._output_sink.hurry()
            await self._told.wait()
        if self._fault is not None:
            raise self._fault

    @property
    def has_news(self) -> bool:
        """Whether there is anything that the store does not have."""
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
    """An `OutputSink` that discards what it is given."""

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
        """Begin to tell."""
        self._loop.start()

    async def stop(self) -> None:
        """Tell no more; whoever waits for it is let go."""
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
        """Let the attempt fail whose output the store does not take."""
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
