"""What handlers say reaches the store in order, once, and before their end."""

import asyncio

import orjson
import pytest

from backburner.domain.errors import StoreUnavailable
from backburner.domain.events import event
from backburner.domain.events.text import LONGEST_DELTA, Text
from backburner.engine.run.context import Context
from backburner.engine.run.services import Services
from backburner.engine.run.streaming import MOST_UNTOLD, OutputStream, StreamWriter
from backburner.ports.notifier import Notification
from backburner.testing.doubles import FakeContext, FrozenClock, SilentNotifier
from backburner.testing.samples import a_claim

EPOCH = 2


class Events:
    """An event log that keeps every report; it waits or fails when told to."""

    def __init__(self):
        self.reports = []
        self.faults = []
        self.open = asyncio.Event()
        self.open.set()
        self.asked = asyncio.Event()

    async def report(self, notes):
        self.asked.set()
        await self.open.wait()
        self.reports.append(list(notes))
        if self.faults:
            raise self.faults.pop(0)

    def text(self):
        """Read the text as a reader would, every number once, as the store has it."""
        text, n = Text(), EPOCH
        for note in (note for report in self.reports for note in report):
            if note.n == n + 1:
                text.take(note.n, note.type, orjson.loads(note.data))
                n = note.n
        return str(text)


class OutputSink:
    """Hears that something was said, and tells nobody."""

    def hear(self, output_stream):
        pass

    def hurry(self):
        pass


@pytest.fixture
def events():
    return Events()


@pytest.fixture
def notifier():
    return SilentNotifier()


@pytest.fixture
async def stream_writer(events, notifier):
    stream_writer = StreamWriter(events, notifier, FrozenClock())
    stream_writer.start()
    yield stream_writer
    await stream_writer.stop()


@pytest.fixture
def ctx(stream_writer):
    return Context(a_claim(events=EPOCH), Services(None, output_sink=stream_writer))


def written(output_stream):
    return [
        (note.n, note.type, orjson.loads(note.data)) for note in output_stream.notes(0)
    ]


def delta(offset, text, **more):
    return {"epoch": EPOCH, "offset": offset, "text": text, **more}


@pytest.fixture
def output_stream():
    return OutputStream(a_claim(events=EPOCH), OutputSink())


def test_what_is_said_within_a_moment_is_one_note(output_stream):
    output_stream.say("one ")
    output_stream.say("two")
    output_stream.report({"done": 1})
    output_stream.report({"done": 2})

    assert [
        (3, event.DELTA, delta(0, "one two")),
        (4, event.PROGRESS, {"done": 2}),
    ] == written(output_stream)


def test_notes_stay_as_they_are_until_they_were_heard(output_stream):
    output_stream.say("one")
    first = written(output_stream)
    output_stream.say("two")
    again = written(output_stream)
    output_stream.heard()

    assert first == again
    assert [(4, event.DELTA, delta(3, "two"))] == written(output_stream)


def test_a_long_text_is_split(output_stream):
    output_stream.say("x" * (LONGEST_DELTA + 1))

    assert [(3, 0, LONGEST_DELTA), (4, LONGEST_DELTA, 1)] == [
        (n, data["offset"], len(data["text"])) for n, _, data in written(output_stream)
    ]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ("one", []),
        ("one two", [delta(3, " two")]),
        ("two", [delta(0, "two", replaces=True)]),
        ("", [delta(0, "", replaces=True)]),
    ],
)
def test_the_text_ends_as_the_result_says(output_stream, result, told):
    output_stream.say("one")
    output_stream.notes(0)
    output_stream.conclude(result)
    output_stream.heard()

    assert told == [data for _, _, data in written(output_stream)]
    assert result == output_stream.text


def test_what_nobody_has_seen_needs_no_correction(output_stream):
    output_stream.say("one")
    output_stream.conclude("two")

    assert [(3, event.DELTA, delta(0, "two"))] == written(output_stream)


def test_a_handler_that_said_nothing_streams_no_result(output_stream):
    output_stream.report({"done": 1})
    output_stream.conclude("one")

    assert [(3, event.PROGRESS, {"done": 1})] == written(output_stream)


def test_half_a_character_is_refused_where_it_is_said(output_stream):
    with pytest.raises(UnicodeEncodeError):
        output_stream.say("\ud83d")

    assert not output_stream.has_news


async def test_everything_is_told_in_order_and_readers_are_woken(ctx, events, notifier):
    for n in range(1_000):
        await ctx.emit(f"{n} ")
        if n % 100 == 0:
            await asyncio.to_thread(lambda: None)
    await ctx.output_stream.told()

    assert ctx.text == events.text() == "".join(f"{n} " for n in range(1_000))
    assert len(events.reports) < 100
    assert Notification.EVENTS == notifier.notified


async def test_a_report_of_unknown_fate_is_repeated_as_it_was(ctx, events):
    events.faults = [StoreUnavailable("gone"), StoreUnavailable("gone")]
    await ctx.emit("one ")
    await events.asked.wait()
    await ctx.emit("two")
    await ctx.output_stream.told()

    assert events.reports[0] == events.reports[1] == events.reports[2]
    assert "one two" == events.text()


async def test_a_handler_far_ahead_of_the_store_waits_for_it(ctx, events):
    events.open.clear()
    await ctx.emit("first")
    await events.asked.wait()
    await ctx.emit("x" * MOST_UNTOLD)
    ahead = asyncio.create_task(ctx.emit("y"))
    await asyncio.to_thread(lambda: None)
    waited = not ahead.done()
    events.open.set()
    await ahead
    await ctx.output_stream.told()

    assert waited
    assert ctx.text == events.text()


async def test_one_voice_that_cannot_be_told_costs_nobody_else(stream_writer, events):
    events.open.clear()
    fault = ValueError("cannot be written")
    one, other = (
        OutputStream(a_claim(seq=n, events=EPOCH), stream_writer) for n in (1, 2)
    )
    one.say("one")
    other.say("other")
    events.faults = [fault, fault]
    events.open.set()

    with pytest.raises(ValueError, match="cannot be written"):
        await one.told()
    await other.told()

    assert [[1, 2], [1], [2]] == [[n.seq for n in told] for told in events.reports]


async def test_whoever_waits_for_a_teller_that_stops_is_let_go(
    ctx, events, stream_writer
):
    events.open.clear()
    await ctx.emit("one")
    await events.asked.wait()
    waiting = asyncio.create_task(ctx.output_stream.told())
    await asyncio.to_thread(lambda: None)
    await stream_writer.stop()

    with pytest.raises(StoreUnavailable):
        await waiting


async def test_a_handler_that_has_ended_says_no_more(ctx):
    ctx.is_over = True

    with pytest.raises(RuntimeError, match="has ended"):
        await ctx.emit("late")

    assert ctx.output_stream is None


async def test_a_fake_context_keeps_the_text():
    ctx = FakeContext()

    await ctx.emit("x" * MOST_UNTOLD)
    await ctx.emit("y")
    await ctx.progress(1, 2)

    assert "x" * MOST_UNTOLD + "y" == ctx.text
    assert [{"done": 1, "total": 2}] == ctx.told
