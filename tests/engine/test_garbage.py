"""Attempts leave no reference cycles: a worker has the collector look seldom."""

import gc

import pytest

from backburner import Context, PermanentError, capability
from backburner.domain.jobs.job import Claim
from backburner.engine.run.attempt import Attempt

pytestmark = pytest.mark.one_store


@capability("plain")
async def plain(_ctx: Context, value: int) -> int:
    return value


@capability("failing")
async def failing(_ctx: Context, _value: int) -> int:
    raise PermanentError("no")


@capability("cyclic")
async def cyclic(ctx: Context, value: int) -> int:
    kept = [ctx]
    kept.append(kept)
    return value


@pytest.fixture
def garbage():
    """Return what was left by attempts that only the collector can free."""
    gc.collect()
    gc.disable()  # else it may look while an attempt is not over yet
    gc.set_debug(gc.DEBUG_SAVEALL)

    def look():
        gc.collect()
        return [kept for kept in gc.garbage if isinstance(kept, OF_ATTEMPTS)]

    yield look
    gc.set_debug(0)
    gc.enable()
    gc.garbage.clear()


OF_ATTEMPTS = (Attempt, Context, Claim)


@pytest.mark.parametrize(
    ("made", "is_left"), [(plain, False), (failing, False), (cyclic, True)]
)
async def test_what_an_attempt_had_is_freed_when_it_is_over(
    working, garbage, made, is_left
):
    backburner = await working(made)
    for ticket in [await backburner.submit(made, i) for i in range(3)]:
        await ticket.wait()
    await backburner.stop_worker()  # until then, what was settled last may be in use

    assert is_left == bool(garbage())
