"""Large inputs of what transaction bodies submit: written beside the event loop."""

import asyncio
import threading

import pytest

from backburner import Context, Flow, JobState, capability

LARGE = "x" * 200_000
"""Goes to the blob store, not into its row."""


@pytest.fixture
def home_url(store_url):
    """Each of the databases."""
    return store_url


@pytest.mark.parametrize("where", ["route", "settlement", "added step"])
async def test_a_large_input_is_written_without_blocking_the_event_loop(
    working, monkeypatch, tmp_path, where
):
    loop, went_on = asyncio.get_running_loop(), []

    @capability("child")
    async def child(_ctx: Context, value: str) -> int:
        return len(value)

    @capability("parent")
    async def parent(ctx: Context, _value: None) -> None:
        if where == "added step":
            ctx.flow.add(child, LARGE)
        else:
            ctx.at_settlement(lambda tx: tx.submit(child, LARGE))

    backburner = await working(parent, child, blobs=f"file://{tmp_path}")
    blobs = backburner.engine.payloads._blobs
    put = blobs.put

    def wait_for_the_loop(contents):
        is_free = threading.Event()
        loop.call_soon_threadsafe(is_free.set)
        went_on.append(is_free.wait(60))
        put(contents)

    monkeypatch.setattr(blobs, "put", wait_for_the_loop)
    if where == "route":
        submitted = await backburner.transact(lambda tx: tx.submit(child, LARGE))
        ended = (await backburner.engine.wait(submitted.id, timeout=60)).state
    elif where == "settlement":
        await (await backburner.submit(parent, None)).result()
        ended = JobState.SUCCEEDED
    else:
        flow = Flow()
        flow.add(parent, None)
        ticket = await backburner.submit_flow(flow)
        ended = (await backburner.engine.flows.wait(ticket.id, timeout=60)).state

    assert ([True], "succeeded") == (went_on, ended)
