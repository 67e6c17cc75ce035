"""Text from a running handler: live, late, over retries, and equal to the result."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from backburner import (
    Backburner,
    Context,
    Draft,
    Failed,
    Owner,
    PermanentError,
    Piece,
    RetryPolicy,
    Snooze,
    StoreUnavailable,
    TransientError,
    capability,
)
from backburner.ai.mock import Mock
from backburner.clock import SystemClock
from backburner.demo import Sleep, sleep, write
from backburner.domain.ai import Trouble
from backburner.domain.events import event
from backburner.domain.events.text import Text
from backburner.domain.jobs.job import JobState
from backburner.ports.ai import Fault, Reply, Tokens
from backburner.settings import Settings

AT_ONCE = RetryPolicy(max_attempts=3, base=timedelta(), jitter=timedelta())
LARGE = 1_000_000


@pytest.fixture
async def opened(store_url, tmp_path):
    """Open instances over the test's store, with a worker each."""
    async with AsyncExitStack() as stack:

        async def start(*capabilities, **settings):
            usual = {
                "grace_seconds": 0,
                "poll_seconds": 0.2,
                "blobs": f"file://{tmp_path}/b",
            }
            backburner = Backburner(
                Settings(store=store_url, **usual | settings), capabilities=capabilities
            )
            await stack.enter_async_context(backburner)
            await backburner.start_worker()
            return backburner

        yield start


@pytest.fixture
def gate():
    return asyncio.Event()


@pytest.fixture
def gated(gate):
    """A capability that writes, waits, and writes the rest."""

    @capability("gated", retry=AT_ONCE)
    async def gated(ctx: Context, _value: None) -> str:
        await ctx.emit(f"attempt {ctx.job.attempt}, ")
        await gate.wait()
        await ctx.emit("done")
        return ctx.text

    return gated


async def told(ticket):
    """Return a job's whole history."""
    return [event async for event in ticket.events()]


async def text_of(ticket):
    """Read a job's text as a late reader does."""
    text = Text()
    for one in await told(ticket):
        text.take(one.n, one.type, one.data)
    return str(text)


async def test_a_late_reader_gets_the_whole_text_and_it_is_the_result(opened):
    backburner = await opened(write)
    ticket = await backburner.submit(write, {"text": "a ticket now", "seconds": 0.3})
    result = await ticket.result()
    history = await told(ticket)

    assert "a ticket now" == result == await text_of(ticket)
    assert {2} == {e.data["epoch"] for e in history if e.type == event.DELTA}
    assert event.SUCCEEDED == history[-1].type


async def test_a_live_reader_gets_text_while_the_handler_runs(opened, gated, gate):
    backburner = await opened(gated)
    ticket = await backburner.submit(gated, None)
    pieces = ticket.pieces()
    first = await anext(pieces)
    running = (await ticket.job()).state
    gate.set()
    rest = [piece async for piece in pieces]

    assert (Piece("attempt 1, "), JobState.RUNNING) == (first, running)
    assert [Piece("done")] == rest


async def test_another_handler_reads_the_text_so_far(opened, gated, gate):
    drafts = []

    @capability("look", max_attempts=1)
    async def look(ctx: Context, job_id: str) -> None:
        drafts.append(await ctx.draft_of(job_id))

    backburner = await opened(gated, look)
    ticket = await backburner.submit(gated, None)
    await anext(ticket.pieces())
    await (await backburner.submit(look, ticket.id)).result()
    gate.set()
    await ticket.result()
    await (await backburner.submit(look, ticket.id)).result()
    stranger = await backburner.submit(look, ticket.id, owner=Owner("default", "2"))
    refused = await stranger.wait()

    running = Draft(JobState.RUNNING, "attempt 1, ")
    assert [running, Draft(JobState.SUCCEEDED, "attempt 1, done")] == drafts
    assert "JobNotFound" in refused.error.message


async def test_a_retry_opens_a_new_epoch_and_readers_drop_what_it_does_not_say(opened):
    @capability("flaky", retry=AT_ONCE)
    async def flaky(ctx: Context, _value: None) -> str:
        await ctx.emit(f"attempt {ctx.job.attempt}")
        if ctx.job.attempt < 3:
            raise TransientError("not yet")
        return ctx.text

    backburner = await opened(flaky)
    ticket = await backburner.submit(flaky, None)
    pieces = [piece async for piece in ticket.pieces()]
    history = await told(ticket)
    starts = [e.n for e in history if e.type == event.STARTED]

    assert [
        Piece("attempt 1"),
        Piece("attempt 2", is_reset=True),
        Piece("attempt 3", is_reset=True),
    ] == pieces
    assert starts == [e.data["epoch"] for e in history if e.type == event.DELTA]


async def test_an_attempt_that_is_handed_back_opens_a_new_epoch_too(
    opened, gated, gate
):
    first = await opened(gated)
    ticket = await first.submit(gated, None)
    await anext(ticket.pieces())
    await first.stop_worker(grace=0)
    gate.set()
    second = await opened(gated)
    result = await ticket.result()
    history = await told(ticket)
    epochs = {e.data["epoch"] for e in history if e.type == event.DELTA}

    assert second is not first
    assert "attempt 1, done" == result == await text_of(ticket)
    assert epochs == {e.n for e in history if e.type == event.STARTED}
    assert 2 == len(epochs)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        # By attempt what is emitted; what a reader who is there throughout gets.
        ([["one ", "two"], ["one ", "two ", "three"]], ["one two", " three"]),
        ([["one ", "two"], ["one two three"]], ["one two", " three"]),
        ([["one two"], ["one", " ", "two"]], ["one two"]),
        ([["one two"], ["o"], ["one", " two three"]], ["one two", " three"]),
        ([["one two"], ["one ", "2 three"]], ["one two", "!one 2 three"]),
        ([["one two"], ["one"]], ["one two", "!one"]),
        ([["one two"], []], ["one two"]),
        ([[], ["one"]], ["one"]),
    ],
)
@pytest.mark.one_store
async def test_a_reader_gets_only_what_a_repeated_run_says_anew(
    opened, texts, expected
):
    @capability("again", retry=AT_ONCE)
    async def again(ctx: Context, _value: None) -> int:
        for text in texts[ctx.job.attempt - 1]:
            await ctx.emit(text)
        if ctx.job.attempt < len(texts):
            await ctx.output_stream.told() if ctx.output_stream else None
            raise TransientError("not yet")
        return 1

    backburner = await opened(again)
    ticket = await backburner.submit(again, None)
    got = [
        f"!{piece.text}" if piece.is_reset else piece.text
        async for piece in ticket.pieces()
    ]

    def folded(pieces):
        said = ""
        for piece in pieces:
            said = piece[1:] if piece.startswith("!") else said + piece
        return said

    sent = "".join(got)
    assert "".join(expected) == sent
    assert folded(got) == folded(expected) == await text_of(ticket)


async def test_an_answer_that_is_asked_for_again_resets_readers_where_it_differs(
    store_url,
):
    """A stream that is cut off is asked for again; the new answer is another one."""

    class Cut(Mock):
        def __init__(self):
            super().__init__(SystemClock())
            self.answers = ["same start, one end", "same start, other end"]

        async def chat(self, chat, hear=None):
            text = self.answers.pop(0)
            await hear(text[:14])
            if self.answers:
                raise Fault(Trouble.UNAVAILABLE, "cut off", status=503)
            await hear(text[14:])
            return Reply(text, chat.model, Tokens(1, 1))

    @capability("ask", retry=AT_ONCE)
    async def ask(ctx: Context, _value: None) -> str:
        return await ctx.ask("hello", stream=True)

    settings = Settings(store=store_url, grace_seconds=0, poll_seconds=0.2)
    async with Backburner(settings, capabilities=[ask], ai=Cut()) as backburner:
        await backburner.start_worker()
        ticket = await backburner.submit(ask, None)
        pieces = [piece async for piece in ticket.pieces()]
    assert ["same start, on", "same start, other end"] == [p.text for p in pieces]
    assert [False, True] == [piece.is_reset for piece in pieces]


async def test_a_cancelled_job_keeps_what_was_told_and_takes_no_more(opened, gate):
    @capability("stubborn")
    async def stubborn(ctx: Context, _value: None) -> str:
        await ctx.emit("before")
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await ctx.emit("after")
            gate.set()
        return ctx.text

    backburner = await opened(stubborn)
    ticket = await backburner.submit(stubborn, None)
    await anext(ticket.pieces())
    await ticket.cancel()
    await gate.wait()
    await backburner.stop_worker(grace=1)

    assert "before" == await text_of(ticket)
    assert event.CANCELLED == (await told(ticket))[-1].type


async def test_the_last_progress_is_told_before_the_end(opened):
    backburner = await opened(sleep)
    ticket = await backburner.submit(sleep, Sleep(seconds=0.05))
    job = await ticket.wait()
    history = await told(ticket)

    assert '{"done":20,"total":20}' == job.progress
    assert [event.PROGRESS, event.SUCCEEDED] == [e.type for e in history[-2:]]
    assert {"done": 20, "total": 20} == history[-2].data


@capability("ends", retry=RetryPolicy(max_attempts=1), timeout=timedelta(seconds=0.3))
async def ends(ctx: Context, how: str) -> str | Snooze | Failed:
    for word in ("all ", "of ", "it"):
        await ctx.emit(word)
    if how == "fails":
        return Failed("NO", "no", retryable=False)
    if how == "raises":
        raise PermanentError("no")
    if how == "hangs":
        await asyncio.get_running_loop().create_future()
    return Snooze(timedelta(hours=1))


@pytest.mark.parametrize(
    ("how", "end"),
    [
        ("fails", event.FAILED),
        ("raises", event.FAILED),
        ("hangs", event.FAILED),
        ("snoozes", event.SCHEDULED),
    ],
)
async def test_all_is_told_before_the_end_however_it_ends(opened, how, end):
    backburner = await opened(ends)
    ticket = await backburner.submit(ends, how)
    text, seen = Text(), []
    async for one in ticket.events():
        text.take(one.n, one.type, one.data)
        seen.append(one.type)
        if one.type == end:
            break

    assert "all of it" == str(text)
    assert event.DELTA == seen[-2]


@pytest.mark.parametrize("result", ["said, and more", "something else", "", "said"])
async def test_readers_end_with_the_result_also_if_it_differs(opened, result, gate):
    @capability("differs")
    async def differs(ctx: Context, value: str) -> str:
        await ctx.emit("said")
        await gate.wait()
        return value

    backburner = await opened(differs)
    ticket = await backburner.submit(differs, result)
    pieces = ticket.pieces()
    seen = (await anext(pieces)).text
    gate.set()
    async for piece in pieces:
        seen = piece.text if piece.is_reset else seen + piece.text

    assert result == seen == await ticket.result() == await text_of(ticket)


async def test_a_result_that_is_no_text_is_not_compared(opened):
    @capability("counts")
    async def counts(ctx: Context, _value: None) -> int:
        await ctx.emit("one, two, three")
        return 3

    backburner = await opened(counts)
    ticket = await backburner.submit(counts, None)

    assert 3 == await ticket.result()
    assert "one, two, three" == await text_of(ticket)


async def test_a_large_text_is_told_whole(opened):
    @capability("long")
    async def long(ctx: Context, _value: None) -> str:
        while len(ctx.text) < LARGE:
            await ctx.emit('"grüße"\n\x00\\🙂 ' * 5_000)
        return ctx.text

    backburner = await opened(long)
    ticket = await backburner.submit(long, None)

    assert await ticket.result() == await text_of(ticket)


async def test_text_survives_a_store_that_fails_before_and_after_its_commit(
    opened, monkeypatch
):
    backburner = await opened(write)
    store = backburner.engine.store
    report, fates = store.report, iter(["before", "after", "after", "before"])

    async def fail(notes):
        fate = next(fates, "well")
        if fate == "before":
            raise StoreUnavailable("on purpose")
        await report(notes)
        if fate == "after":
            raise StoreUnavailable("on purpose")

    monkeypatch.setattr(store, "report", fail)
    ticket = await backburner.submit(write, {"text": "a b c d e f", "seconds": 0.5})

    assert "a b c d e f" == await ticket.result() == await text_of(ticket)


async def test_a_task_that_outlives_its_handler_adds_nothing(opened, gate):
    errors = []

    @capability("leaves")
    async def leaves(ctx: Context, _value: None) -> str:
        async def stray():
            await gate.wait()
            try:
                await ctx.emit("stray")
            except RuntimeError as error:
                errors.append(error)

        tasks.append(asyncio.create_task(stray()))
        await ctx.emit("all")
        return ctx.text

    tasks = []
    backburner = await opened(leaves)
    ticket = await backburner.submit(leaves, None)
    result = await ticket.result()
    gate.set()
    await asyncio.gather(*tasks)

    assert "all" == result == await text_of(ticket)
    assert 1 == len(errors)
