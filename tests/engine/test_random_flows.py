"""Random graphs of steps with random outcomes end as ten lines say they must."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from backburner import (
    Backburner,
    Cancel,
    Context,
    Flow,
    JobState,
    PermanentError,
    RetryPolicy,
    capability,
)
from backburner.domain.groups.flow import Edge
from backburner.testing.groups import verdict
from backburner.testing.records import Edge as Line

PATIENCE = 180.0
AT_ONCE = RetryPolicy(base=timedelta(), jitter=timedelta())
ENDS = {
    "succeed": JobState.SUCCEEDED,
    "stumble": JobState.SUCCEEDED,
    "fail": JobState.FAILED,
    "drop": JobState.CANCELLED,
}

Step = tuple[str, list[tuple[int, bool]]]
"""What it does, and for whom it waits: the place of each, and whether it continues."""


class Part(BaseModel):
    """What a step does in which play."""

    play: int
    outcome: str


@st.composite
def graphs(draw: st.DrawFn) -> list[Step]:
    """Return steps of which each waits for some that come before it."""
    outcomes = st.sampled_from(["succeed", "succeed", "succeed", *ENDS])
    steps: list[Step] = []
    for place in range(draw(st.integers(1, 8))):
        earlier = st.integers(0, max(0, place - 1))
        needs = st.dictionaries(earlier, st.booleans(), max_size=min(place, 4))
        steps.append((draw(outcomes), list(draw(needs).items())))
    return steps


def model(steps: Sequence[Step]) -> list[JobState]:
    """Say how each step must end."""
    states: list[JobState] = []
    for outcome, needs in steps:
        may_run = all(
            continues or states[place] is JobState.SUCCEEDED
            for place, continues in needs
        )
        states.append(ENDS[outcome] if may_run else JobState.CANCELLED)
    return states


class Stage:
    """An instance whose worker plays parts, and what each of them saw before it."""

    def __init__(self) -> None:
        self.backburner: Backburner
        self.seen: dict[tuple[int, str], dict[str, JobState]] = {}
        self._mended: set[int] = set()
        self._plays = count(1)

    async def act(self, ctx: Context, part: Part) -> str | Cancel:
        self.seen[part.play, ctx.job.step] = {
            name: given.state for name, given in ctx.needs.items()
        }
        if part.outcome == "fail" and part.play not in self._mended:
            raise PermanentError("as the play has it")
        if part.outcome == "stumble" and ctx.job.attempt == 1:
            raise RuntimeError("at first")
        return Cancel("as the play has it") if part.outcome == "drop" else ctx.job.id

    async def perform(self, steps: Sequence[Step]):
        """Play a flow to its end; if it failed, mend it and play it on."""
        number, flow = next(self._plays), Flow()
        for place, (outcome, needs) in enumerate(steps):
            flow.add(
                "play",
                Part(play=number, outcome=outcome),
                after=[Edge(f"s{other}", continues) for other, continues in needs],
                name=f"s{place}",
            )
        ticket = await self.backburner.submit_flow(flow)
        first = await self._end(ticket, len(steps))
        if JobState.FAILED not in first[1]:
            return number, first, None
        self._mended.add(number)
        await ticket.retry()
        return number, first, await self._end(ticket, len(steps))

    async def _end(self, ticket, size: int):
        flow = await ticket.wait(PATIENCE)
        jobs = await ticket.steps()
        return flow.state, [jobs[f"s{place}"].state for place in range(size)]


@pytest.fixture
def play(backburner):
    """Play flows, one after the other, in one deployment."""
    stage = Stage()

    @capability("play", retry=AT_ONCE)
    async def act(ctx: Context, part: Part) -> str | Cancel:
        return await stage.act(ctx, part)

    async def open_instance() -> None:
        stage.backburner = backburner(act)
        await stage.backburner.__aenter__()
        await stage.backburner.start_worker()

    with asyncio.Runner() as runner:
        runner.run(open_instance())
        yield lambda steps: (stage, *runner.run(stage.perform(steps)))
        runner.run(stage.backburner.__aexit__(None, None, None))


def come_to(steps: Sequence[Step], states: Sequence[JobState]):
    lines = [
        Line(other, place, continues)
        for place, (_, needs) in enumerate(steps)
        for other, continues in needs
    ]
    return verdict(dict(enumerate(states)), lines)


@pytest.mark.thorough
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=graphs())
def test_every_step_ends_as_its_prerequisites_and_its_part_have_it(play, steps):
    stage, number, first, again = play(steps)
    expected = model(steps)
    mended = [
        ("succeed" if outcome == "fail" else outcome, needs) for outcome, needs in steps
    ]

    assert (come_to(steps, expected), expected) == first
    if again is not None:
        assert (come_to(mended, model(mended)), model(mended)) == again
    for place, (_, needs) in enumerate(steps):
        for name, state in stage.seen.get((number, f"s{place}"), {}).items():
            continues = dict(needs)[int(name[1:])]
            assert state is JobState.SUCCEEDED or (continues and state.is_final), (
                f"s{place} began while {name} was {state}"
            )
