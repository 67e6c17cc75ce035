import asyncio

from backburner.engine.loop import Loop


async def test_a_loop_ends_though_its_action_swallowed_the_cancellation():
    begun = asyncio.Event()

    async def action():
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return  # as a library's wait_for may

    loop = Loop("stubborn", action, every=3600.0)
    loop.start()
    await begun.wait()

    stopping = asyncio.create_task(loop.stop())
    done, _ = await asyncio.wait({stopping}, timeout=10)

    assert {stopping} == done


async def test_a_loop_that_was_stopped_can_be_started_again():
    calls = asyncio.Queue()

    async def action():
        calls.put_nowait("call")

    loop = Loop("again", action, every=3600.0)
    for _ in range(2):
        loop.start()
        await calls.get()
        loop.poke()
        await calls.get()
        await loop.stop()

    assert calls.empty()
