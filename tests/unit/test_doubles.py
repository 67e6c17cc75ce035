from datetime import timedelta

from backburner.demo import echo, sleep
from backburner.ports.notifier import Notification
from backburner.testing.doubles import FakeContext, FrozenClock, SilentNotifier
from backburner.testing.samples import NOON


def test_a_frozen_clock_goes_on_only_when_told():
    clock = FrozenClock()
    begun = clock.monotonic()

    clock.advance(timedelta(seconds=1))

    assert NOON + 1_000 == clock.now()
    assert 1_000 == clock.monotonic() - begun


def test_a_silent_notifier_calls_nobody_and_remembers():
    heard = []
    notifier = SilentNotifier()
    unsubscribe = notifier.listen(heard.append)

    notifier.notify(Notification.WORK)
    notifier.notify(Notification.EVENTS)
    unsubscribe()

    assert [] == heard
    assert Notification.WORK | Notification.EVENTS == notifier.notified


async def test_a_handler_can_be_called_by_hand():
    ctx = FakeContext(attempt=2)

    assert {"a": 1} == await echo.run(ctx, {"a": 1})
    assert 2 == ctx.job.attempt


async def test_a_fake_context_keeps_blobs():
    ctx = FakeContext()
    first, second = await ctx.blobs.put(b"one"), await ctx.blobs.put(b"two")

    assert [b"one", b"two"] == [await ctx.blobs.get(first), await ctx.blobs.get(second)]


async def test_a_fake_context_keeps_what_the_handler_told():
    ctx = FakeContext()

    await sleep.run(ctx, sleep.input.validate_python({"seconds": 0}))
    await ctx.submit(echo, {"a": 1}, priority=3)
    ctx.at_settlement(print)

    assert {"done": 20, "total": 20} == ctx.told[-1]
    ours = {"owner": ctx.job.owner, "request_id": None, "traceparent": None}
    assert [(echo, {"a": 1}, {**ours, "priority": 3})] == ctx.submitted
    assert (print,) == ctx.settlement_bodies
