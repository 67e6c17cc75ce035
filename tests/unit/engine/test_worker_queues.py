"""A worker and its queues: what it asks for, and that none waits for the poll."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backburner import (
    Backburner,
    ConfigurationError,
    Context,
    Queue,
    Rate,
    Schedule,
    Settings,
    capability,
)
from backburner.engine.run.claim_planner import ClaimPlanner

HOUR = 3_600
"""So long between polls that nothing here can come of one."""


@capability("a", queue="a")
async def a(_ctx: Context, value: int) -> int:
    return value


@capability("b", queue="b")
async def b(_ctx: Context, value: int) -> int:
    return value


def an_instance(tmp_path, **options):
    settings = Settings(
        store=f"sqlite:///{tmp_path}/jobs.db",
        slots=options.pop("slots", 8),
        poll_seconds=options.pop("poll", HOUR),
        lease_seconds=2 * HOUR,
        beat_seconds=HOUR,
        grace_seconds=0,
    )
    return Backburner(settings, capabilities=[a, b], **options)


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(1, 6), st.booleans())))
@example(4, [(1, False), (3, False)])
@example(2, [(1, True), (1, False)])
def test_a_worker_rests_only_when_every_queue_was_asked_since_the_ring(count, rounds):
    """However many slots are free in each round, and however often it is notified."""
    queues = [f"q{n}" for n in range(count)]
    claim_planner = ClaimPlanner(queues, {}, lambda _queue: 0)
    asked = set()
    for free, rings in rounds:
        claim_requests = claim_planner.claim_requests(free)
        claim_planner.got(claim_requests, ())
        asked |= {claim_request.queue for claim_request in claim_requests}
        assert asked == {*queues} or claim_planner.may_have_work
        if rings or not claim_planner.may_have_work:
            claim_planner.notify()
            asked.clear()


def limits(claim_requests):
    """Return what is asked of each queue: its share, and the most it may get."""
    return {queue: (limit, limit + extra) for queue, limit, extra in claim_requests}


def test_a_queue_without_jobs_takes_no_slots_from_others():
    claim_planner = ClaimPlanner(["busy", "rare"], {}, lambda _queue: 0)

    first = claim_planner.claim_requests(100)
    claim_planner.got(first, ["busy"] * 100)
    second = claim_planner.claim_requests(100)
    claim_planner.notify()
    third = claim_planner.claim_requests(100)
    claim_planner.got(third, ["busy"] * 99 + ["rare"])
    fourth = claim_planner.claim_requests(100)

    assert {"busy": (50, 100), "rare": (50, 100)} == limits(first)
    assert {"busy": (100, 100)} == limits(second)
    assert {"busy": (99, 100), "rare": (1, 100)} == limits(third)
    assert "rare" == third[0].queue, "what it leaves goes to those after it"
    assert {"busy": (50, 100), "rare": (50, 100)} == limits(fourth)


def test_a_queue_whose_notification_was_lost_is_asked_after_the_poll():
    claim_planner = ClaimPlanner(["busy", "rare"], {}, lambda _queue: 0)

    claim_planner.got(claim_planner.claim_requests(2), ["busy", "busy"])
    before = claim_planner.claim_requests(2)
    claim_planner.learn([])
    after = claim_planner.claim_requests(2)

    assert ({"busy"}, {"busy", "rare"}) == (limits(before).keys(), limits(after).keys())


def test_a_claim_that_a_notification_overtook_leaves_work():
    claim_planner = ClaimPlanner(["one"], {}, lambda _queue: 0)

    claim_requests = claim_planner.claim_requests(5)
    claim_planner.notify()
    claim_planner.got(claim_requests, ())

    assert claim_planner.may_have_work
    assert {"one": (5, 5)} == limits(claim_planner.claim_requests(5))


def test_jobs_that_need_a_message_get_no_slots_of_others():
    bounds = {"a": 3, "b": 0}
    claim_planner = ClaimPlanner(["a", "b"], {}, lambda _queue: 0, bounds.get)

    assert {"a": (3, 3)} == limits(claim_planner.claim_requests(10))


async def run_all(backburner, *asked):
    """Submit five of each, then work; return how all of them ended."""
    async with backburner, asyncio.timeout(60):
        tickets = [
            t for one in asked for t in await backburner.submit_many(one, range(5))
        ]
        await backburner.start_worker()
        return [await ticket.result() for ticket in tickets]


async def test_with_one_slot_no_queue_waits_for_the_poll(tmp_path):
    results = await run_all(an_instance(tmp_path, slots=1), b, a)

    assert 2 * list(range(5)) == results


@pytest.mark.parametrize(
    "policy", [Queue("a", concurrency=1), Queue("a", per_worker=1)], ids=str
)
async def test_a_slot_that_a_limit_frees_is_used_at_once(tmp_path, policy):
    results = await run_all(an_instance(tmp_path, queues=[policy]), a)

    assert list(range(5)) == results


async def test_a_worker_wakes_when_a_window_opens(tmp_path):
    policy = Queue("a", rate=Rate(3, per=timedelta(seconds=1)))

    results = await run_all(an_instance(tmp_path, queues=[policy], poll=0.2), a)

    assert list(range(5)) == results


async def test_a_schedule_submits_by_itself(tmp_path):
    every_second = Schedule("often", "* * * * * *", a, 7)
    backburner = an_instance(tmp_path, schedules=[every_second], poll=1)

    async with backburner, asyncio.timeout(60):
        await backburner.start_worker()
        async for event in backburner.engine.stream():
            if event.type == "job.succeeded":
                break
        job = await backburner.engine.find(event.subject)

    assert ("a", "7") == (job.capability, job.output)
    assert "schedule:often" == job.tags[0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"queues": [Queue("a"), Queue("a")]}, "declared twice"),
        (
            {"schedules": [Schedule("n", "* * * * *", a, 1) for _ in range(2)]},
            "two schedules",
        ),
        ({"schedules": [Schedule("n", "* * * * *", "c")]}, "no capability"),
        ({"schedules": [Schedule("n", "* * * * *", a, "one")]}, "does not match"),
    ],
)
async def test_an_instance_that_contradicts_itself_does_not_open(
    tmp_path, options, told
):
    with pytest.raises(ConfigurationError, match=told):
        async with an_instance(tmp_path, **options):
            pytest.fail("it opened")
