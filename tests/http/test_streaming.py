"""Text from a running handler, over SSE and over a WebSocket."""

import asyncio
from datetime import timedelta

import orjson
import pytest
from websockets.asyncio.client import connect

from backburner import Context, RetryPolicy, TransientError, capability
from backburner.domain.events import event
from backburner.domain.events.text import LONGEST_DELTA, Text
from backburner.http.schemas.jobs import EventView

pytestmark = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)

AT_ONCE = RetryPolicy(base=timedelta(), jitter=timedelta())
WIDE = LONGEST_DELTA + 1
SMILE = "🙂"


@pytest.fixture
async def writing(serve, tmp_path):
    """A server whose `test.write` fails once, writes, waits, and writes the rest."""
    release = asyncio.Event()

    @capability("test.write", queue="demo", retry=AT_ONCE)
    async def write(ctx: Context, smiles: int) -> str:
        await ctx.emit(f"attempt {ctx.job.attempt}, ")
        if ctx.job.attempt == 1:
            raise TransientError("once")
        await release.wait()
        await ctx.emit(SMILE * smiles)
        return ctx.text

    server = await serve(capabilities=[write], blobs=tmp_path.as_uri())
    server.release = release
    yield server
    release.set()


async def read(server, url, text, *, until=None, after=0):
    """Read a text on from an event until something is told, or to its end."""
    async with server.client.sse(url, headers={"Last-Event-ID": str(after)}) as source:
        async for told in source:
            if not told.data:
                continue
            seen = orjson.loads(told.data)
            EventView.model_validate(seen)
            text.take(seen["n"], seen["type"], seen["data"])
            after = int(told.id)
            if until is not None and until in str(text):
                break
    return after


async def test_a_reader_over_sse_that_is_cut_in_the_middle_ends_with_the_result(
    writing,
):
    job = await writing.submit("test.write", WIDE)
    url, text = job["links"]["events"], Text()
    seen = await read(writing, url, text, until="attempt 2")
    writing.release.set()
    await read(writing, url, text, after=seen)
    late = Text()
    await read(writing, url, late)

    result = (await writing.ended(job))["output"]
    assert "attempt 2, " + SMILE * WIDE == result == str(text) == str(late)


async def test_a_reader_over_a_websocket_that_comes_back_ends_with_the_result(writing):
    job = await writing.submit("test.write", WIDE)
    where, text, seen = writing.url.replace("http", "ws") + "/v1/ws", Text(), 0
    asked = {"type": "subscribe", "job_id": job["id"]}
    for until in ("attempt 2", None):
        async with asyncio.timeout(60), connect(where, proxy=None) as socket:
            await socket.send(orjson.dumps(asked | {"after": seen}).decode())
            async for message in socket:
                told = orjson.loads(message)
                if told["type"] == "ended":
                    break
                if "n" in told:
                    seen = told["n"]
                    text.take(seen, told["type"], told["data"])
                if until is not None and until in str(text):
                    break
        writing.release.set()

    assert (await writing.ended(job))["output"] == str(text)


async def test_the_stream_of_all_jobs_carries_the_text_of_each(writing):
    writing.release.set()
    jobs = [await writing.submit("test.write", smiles) for smiles in (1, 2)]
    texts = {job["id"]: Text() for job in jobs}
    left = set(texts)
    async with writing.client.sse("/v1/events", params={"after": 0}) as source:
        async for told in source:
            seen = orjson.loads(told.data) if told.data else {"job_id": None}
            if seen["job_id"] in texts:
                texts[seen["job_id"]].take(seen["n"], seen["type"], seen["data"])
                left -= {seen["job_id"]} if seen["type"] == event.SUCCEEDED else set()
            if not left:
                break

    assert ["attempt 2, 🙂", "attempt 2, 🙂🙂"] == [
        str(text) for text in texts.values()
    ]
