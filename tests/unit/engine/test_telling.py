"""What handlers say reaches the store in order, once, and before their end."""

import asyncio

import orjson
import pytest

from backburner.domain import event
from backburner.domain.errors import StoreUnavailable
from backburner.domain.text import LONGEST_DELTA, Text
from backburner.engine.context import Context, Services
from backburner.engine.telling import MOST_UNTOLD, Teller, Voice
from backburner.ports.bell import Ring
from backburner.testing.doubles import FakeContext, FrozenClock, SilentBell
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


class Ear:
    """Hears that something was said, and tells nobody."""

    def hear(self, voice):
        pass

    def hurry(self):
        pass


@pytest.fixture
def events():
    return Events()


@pytest.fixture
def bell():
    return SilentBell()


@pytest.fixture
async def teller(events, bell):
    teller = Teller(events, bell, FrozenClock())
    teller.start()
    yield teller
    await teller.stop()


@pytest.fixture
def ctx(teller):
    return Context(a_claim(events=EPOCH), Services(teller, None))


def written(voice):
    return [(note.n, note.type, orjson.loads(note.data)) for note in voice.notes(0)]


def delta(offset, text, **more):
    return {"epoch": EPOCH, "offset": offset, "text": text, **more}


@pytest.fixture
def voice():
    return Voice(a_claim(events=EPOCH), Ear())


def test_what_is_said_within_a_moment_is_one_note(voice):
    voice.say("one ")
    voice.say("two")
    voice.report({"done": 1})
    voice.report({"done": 2})

    assert [
        (3, event.DELTA, delta(0, "one two")),
        (4, event.PROGRESS, {"done": 2}),
    ] == written(voice)


def test_notes_stay_as_they_are_until_they_were_heard(voice):
    voice.say("one")
    first = written(voice)
    voice.say("two")
    again = written(voice)
    voice.heard()

    assert first == again
    assert [(4, event.DELTA, delta(3, "two"))] == written(voice)


def test_a_long_text_is_split(voice):
    voice.say("x" * (LONGEST_DELTA + 1))

    assert [(3, 0, LONGEST_DELTA), (4, LONGEST_DELTA, 1)] == [
        (n, data["offset"], len(data["text"])) for n, _, data in written(voice)
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
def test_the_text_ends_as_the_result_says(voice, result, told):
    voice.say("one")
    voice.notes(0)
    voice.conclude(result)
    voice.heard()

    assert told == [data for _, _, data in written(voice)]
    assert result == voice.text


def test_what_nobody_has_seen_needs_no_correction(voice):
    voice.say("one")
    voice.conclude("two")

    assert [(3, event.DELTA, delta(0, "two"))] == written(voice)


def test_a_handler_that_said_nothing_streams_no_result(voice):
    voice.report({"done": 1})
    voice.conclude("one")

    assert [(3, event.PROGRESS, {"done": 1})] == written(voice)


def test_half_a_character_is_refused_where_it_is_said(voice):
    with pytest.raises(UnicodeEncodeError):
        voice.say("\ud83d")

    assert not voice.has_news


async def test_everything_is_told_in_order_and_readers_are_woken(ctx, events, bell):
    for n in range(1_000):
        await ctx.emit(f"{n} ")
        if n % 100 == 0:
            await asyncio.to_thread(lambda: None)
    await ctx.voice.told()

    assert ctx.text == events.text() == "".join(f"{n} " for n in range(1_000))
    assert len(events.reports) < 100
    assert Ring.EVENTS == bell.rung


async def test_a_report_of_unknown_fate_is_repeated_as_it_was(ctx, events):
    events.faults = [StoreUnavailable("gone"), StoreUnavailable("gone")]
    await ctx.emit("one ")
    await events.asked.wait()
    await ctx.emit("two")
    await ctx.voice.told()

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
    await ctx.voice.told()

    assert waited
    assert ctx.text == events.text()


async def test_one_voice_that_cannot_be_told_costs_nobody_else(teller, events):
    events.open.clear()
    fault = ValueError("cannot be written")
    one, other = (Voice(a_claim(seq=n, events=EPOCH), teller) for n in (1, 2))
    one.say("one")
    other.say("other")
    events.faults = [fault, fault]
    events.open.set()

    with pytest.raises(ValueError, match="cannot be written"):
        await one.told()
    await other.told()

    assert [[1, 2], [1], [2]] == [[n.seq for n in told] for told in events.reports]


async def test_whoever_waits_for_a_teller_that_stops_is_let_go(ctx, events, teller):
    events.open.clear()
    await ctx.emit("one")
    await events.asked.wait()
    waiting = asyncio.create_task(ctx.voice.told())
    await asyncio.to_thread(lambda: None)
    await teller.stop()

    with pytest.raises(StoreUnavailable):
        await waiting


async def test_a_handler_that_has_ended_says_no_more(ctx):
    ctx.is_over = True

    with pytest.raises(RuntimeError, match="has ended"):
        await ctx.emit("late")

    assert ctx.voice is None


async def test_a_fake_context_keeps_the_text():
    ctx = FakeContext()

    await ctx.emit("x" * MOST_UNTOLD)
    await ctx.emit("y")
    await ctx.progress(1, 2)

    assert "x" * MOST_UNTOLD + "y" == ctx.text
    assert [{"done": 1, "total": 2}] == ctx.told
