"""
Steps, sleeps, waits and signals in virtual time, with crashes at their failpoints.

A step runs again only if its result was not stored, the first signal of a name wins,
and no signalled job waits for ever. A protection that is switched off is noticed.
"""

from collections import Counter
from datetime import timedelta

import orjson
import pytest

from backburner import Context, SignalConflict, WaitTimedOut, capability
from backburner.domain.jobs.transitions import Limits
from backburner.engine.registry import Registry
from backburner.engine.run.steps import StepJournal
from backburner.engine.submit.submission import Options
from backburner.stores.shared.grouped import GroupedTx
from backburner.testing.simulation import process
from backburner.testing.simulation.line import LOST, Line
from backburner.testing.simulation.process import Unit
from backburner.testing.simulation.world import Nature, Variant, World
from tests.simulation.mutation import unmeasured

JOBS = 6
SEEDS = range(12)
LIKELY = 27
"""The seed that last noticed a signal that nobody looks for; it goes first."""
STRUCK_SECONDS = 20
HEALING_SECONDS = 120
NONE = -1
PLACES = (
    *("wait.opening", "wait.settling", "signal.stored", "signal.woken"),
    *(
        f"{verb}.{moment}_commit"
        for verb in ("save", "transact", "settle", "promote")
        for moment in ("before", "after")
    ),
)
UNFINISHED = "SELECT 1 FROM jobs WHERE finished_at IS NULL LIMIT 1"
STORED = "SELECT count(*) FROM step_results WHERE job = ? AND name = ?"


@pytest.fixture(autouse=True)
def _many_crashes(monkeypatch):
    """Let no job end because its workers were lost: that is not looked at here."""
    monkeypatch.setattr(process, "LIMITS", Limits(crashes=1_000))


class Watched:
    """A world whose jobs wait, and what is seen of it."""

    def __init__(self, seed):
        self.breaches = []
        self.accepted = {}
        """Which value of each job and name was answered as stored."""
        registry = Registry([self.capability()])
        self.world = World(seed, Variant(), registry, tracing=False)
        self.world.nature = Nature(delay=0.02, loss=0.1, keep=timedelta(hours=1))
        self.units = []
        self.units += [
            Unit(self.world, name, slots=2, peers=self.units) for name in ("a", "b")
        ]
        self.line = Line(self.world, self.units)
        self.is_struck = True
        self.world.doom = self.doom

    def doom(self):
        lots = self.world.random
        place = lots.choice(PLACES) if self.is_struck else "nowhere"
        return place, lots.choice((0, 1, 3))

    def capability(self):
        def step(ctx, name):
            seq = ctx._claim.seq
            [(count,)] = self.world.disk.reading.exec_driver_sql(STORED, (seq, name))
            if count:
                self.breaches.append(f"step {name} of {seq} runs though it is stored")
            return name

        @capability("waits", timeout=timedelta(hours=1))
        async def waits(ctx: Context, _number: int) -> list[int]:
            await ctx.step("before", step, ctx, "before")
            await ctx.sleep(0.5)
            value = await ctx.wait("go", into=int)
            await ctx.step("after", step, ctx, "after")
            try:
                late = await ctx.wait("late", timeout=1.5, into=int)
            except WaitTimedOut:
                late = NONE
            await ctx.step("end", step, ctx, "end")
            return [value, late]

        return waits

    async def persist(self, verb):
        """Ask again until there is an answer."""
        while True:
            try:
                return await self.line.call(verb)
            except LOST:
                await self.world.sleep(0.2)

    async def tell(self, job, name, value, span):
        """Send a signal at some time, as often as it takes to learn of its fate."""
        await self.world.sleep(self.world.random.random() * span)
        try:
            await self.persist(lambda engine: engine.signal(job, name, value))
        except SignalConflict:
            return
        first = self.accepted.setdefault((job, name), value)
        if first != value:
            self.breaches.append(f"{name} of {job} is {first} and {value}")

    async def live(self):
        for unit in self.units:
            unit.clock.skew = 0
            unit.start()
        asks = [("waits", n, Options(idempotency_key=f"job-{n}")) for n in range(JOBS)]
        answers = await self.persist(lambda engine: engine.submit_many(asks))
        tasks = []
        for answer in answers:
            for value in range(3):
                tasks += [
                    self.world.spawn(self.tell(answer.id, "go", value, 6)),
                    self.world.spawn(self.tell(answer.id, "late", value, 12)),
                ]
        await self.world.sleep(STRUCK_SECONDS)
        self.is_struck = False
        for unit in self.units:
            if unit.process is not None:
                unit.process.doom = None
        await self.heal(tasks)
        self.breaches += [f"task {t} is not over" for t in tasks if not t.done()]

    async def heal(self, tasks):
        """Let time pass until all has ended, or should have."""
        end = self.world.loop.time() + HEALING_SECONDS
        while self.world.loop.time() < end:
            is_told = all(task.done() for task in tasks)
            if is_told and not self.world.disk.rows(UNFINISHED):
                return
            await self.world.sleep(1)

    def judge(self):
        rows = self.world.disk.reading.exec_driver_sql(
            "SELECT id, state, attempt, output FROM jobs"
        )
        found = [tuple(row) for row in rows]
        if len(found) != JOBS:
            self.breaches.append(f"{len(found)} jobs are there")
        for job, state, attempt, output in found:
            if (state, attempt) != ("succeeded", 1):
                self.breaches.append(f"{job} is {state} at attempt {attempt}")
                continue
            for name, value in zip(("go", "late"), orjson.loads(output), strict=True):
                told = self.accepted.get((job, name), NONE)
                if told != value:
                    self.breaches.append(f"{name} of {job}: {value}, told {told}")


def breaches_of(seed, crashed=None):
    """Return what went wrong in a world."""
    watched = Watched(seed)
    world = watched.world
    try:
        with unmeasured():
            world.loop.run_until_complete(world.spawn(watched.live()))
        watched.judge()
        if crashed is not None:
            crashed.update(world.crashed)
        return watched.breaches
    finally:
        world.close()


def test_nothing_is_lost_or_done_again_wherever_processes_end():
    crashed = Counter()
    for seed in SEEDS:
        assert [] == breaches_of(seed, crashed), f"seed {seed}"
    assert set() == set(PLACES) - set(crashed)


def test_without_a_look_for_signals_at_settlement_a_job_waits_for_ever(monkeypatch):
    monkeypatch.setattr(GroupedTx, "has_signal", lambda *_: False)
    assert any(breaches_of(seed) for seed in dict.fromkeys((LIKELY, *range(60))))


def test_without_reading_stored_steps_they_run_again(monkeypatch):
    async def read(*_):
        return ()

    monkeypatch.setattr(StepJournal, "_read", read)
    assert any("though it is stored" in told for told in breaches_of(0))
