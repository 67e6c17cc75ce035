"""Clients that use every operation and record the answers in a ledger."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from backburner.domain.errors import (
    BudgetExhausted,
    CallerError,
    IdempotencyConflict,
)
from backburner.domain.events.event import Event
from backburner.domain.jobs.job import JobState
from backburner.engine.engine import Engine
from backburner.engine.submit.submission import LOCAL, Options
from backburner.engine.transaction import Transaction
from backburner.ports.store.maintenance import JobFilter
from backburner.testing.auditor import Reading
from backburner.testing.samples import NOON
from backburner.testing.simulation.groups import Asked, Groups
from backburner.testing.simulation.line import LOST, Line
from backburner.testing.simulation.work import (
    LONG,
    NOTED,
    STEPS,
    TEXTS,
    Script,
    note,
)
from backburner.testing.simulation.world import World

TRIES: Final = 6
RECEIVERS: Final = ("succeed", "succeed", "give up")


@dataclass(frozen=True, slots=True)
class Request:
    """A submission, as a client may repeat it."""

    capability: str
    script: Script
    options: Options

    @property
    def body(self) -> str:
        """The whole request without its key."""
        return repr(
            (self.capability, self.script, replace(self.options, idempotency_key=None))
        )


class Client:
    """An external caller, over connections that break."""

    def __init__(
        self,
        world: World,
        line: Line,
        keyed: dict[str, Request],
        grouped: dict[str, Asked],
    ) -> None:
        self._world = world
        self._line = line
        self._lots = world.random
        self._keyed = keyed
        """Requests with an idempotency key, of all clients."""
        self._pause = self._lots.choice((0.2, 0.4, 0.8))
        self._followers: list[asyncio.Task[None]] = []
        self._kinds = self._choose_steps()
        self._groups = Groups(world, line, self._draw_parts, grouped)

    async def ask(self, seconds: float) -> None:
        """Send requests for `seconds`, then seal all batches."""
        actions, weights = zip(*self._actions(), strict=True)
        end = self._world.loop.time() + seconds
        while self._world.loop.time() < end:
            await self._world.sleep(self._lots.expovariate(1 / self._pause))
            (action,) = self._lots.choices(actions, weights)
            try:
                await action()
            except (*LOST, CallerError) as error:
                self._world.note("client met", type(error).__name__)
        await self._groups.seal()

    @property
    def reads(self) -> bool:
        """Whether it still follows any events."""
        readers = (*self._followers, *self._groups.readers)
        return not all(reader.done() for reader in readers)

    def _actions(self) -> Sequence[tuple[Callable[[], Awaitable[None]], int]]:
        return (
            (self._submit, 5),
            (self._submit_many, 1),
            (self._submit_at_once, 2),
            (self._submit_again, 2),
            (self._submit_other, 1),
            (self._transact, 2),
            (self._cancel, 3),
            (self._retry, 4),
            (self._retry_all, 1),
            (self._follow, 2),
            (self._wait, 1),
            (self._look, 3),
            *self._groups.actions(),
        )

    async def _submit(self) -> None:
        await self._send(self._draw(keyed=self._world.happens(0.5)))

    async def _submit_many(self) -> None:
        requests = [self._draw(keyed=False) for _ in range(self._lots.randint(2, 6))]
        wanted = [(r.capability, r.script, r.options) for r in requests]
        answers = await self._line.call(lambda engine: engine.submit_many(wanted))
        for answer in answers:
            self._world.ledger.acknowledge(answer.id)

    async def _submit_at_once(self) -> None:
        request = self._draw(keyed=True)
        tasks = [self._world.spawn(self._send(request)) for _ in range(3)]
        for task in tasks:
            await task

    async def _submit_again(self) -> None:
        if self._keyed:
            await self._send(self._lots.choice(list(self._keyed.values())))

    async def _submit_other(self) -> None:
        if self._keyed:
            key = self._lots.choice(list(self._keyed))
            other = self._draw(keyed=False)
            options = replace(other.options, idempotency_key=key)
            await self._send(replace(other, options=options))

    async def _transact(self) -> None:
        request = self._draw(keyed=False)

        def body(tx: Transaction) -> str:
            submitted = tx.submit(
                request.capability, request.script, tags=(NOTED,), queue="other"
            )
            note(tx, submitted.id)
            return submitted.id

        self._world.ledger.acknowledge(
            await self._line.call(lambda e: e.transact(body))
        )

    async def _cancel(self) -> None:
        if jobs := self._recent(10):
            job = self._lots.choice(jobs)
            await self._line.call(
                lambda engine: engine.cancel(job, reason=f"asked: {job}")
            )

    async def _retry(self) -> None:
        dead = await self._line.call(lambda engine: engine.jobs(_DEAD, limit=5))
        if dead:
            job = self._lots.choice(dead).id
            tasks = [self._world.spawn(self._retry_one(job)) for _ in range(2)]
            for task in tasks:
                await task

    async def _retry_one(self, job: str) -> None:
        try:
            await self._line.call(lambda engine: engine.retry(job))
        except (*LOST, CallerError) as error:
            self._world.note("retry met", type(error).__name__)

    async def _retry_all(self) -> None:
        rate = self._lots.choice((None, 2.0))
        await self._line.call(
            lambda engine: engine.retry_all(_DEAD, limit=3, rate=rate)
        )

    async def _wait(self) -> None:
        if jobs := self._recent(10):
            job = self._lots.choice(jobs)
            await self._line.call(lambda engine: engine.wait(job, timeout=2.0))

    async def _look(self) -> None:
        await self._line.call(lambda engine: engine.store.ping())
        await self._line.call(lambda engine: engine.failures())

    async def _follow(self) -> None:
        if jobs := self._recent(5):
            job = self._lots.choice(jobs)
            self._followers.append(self._world.spawn(self._read(job)))

    async def _read(self, job: str) -> None:
        """Read a job's events to their end, over as many connections as needed."""
        seen: list[tuple[int, str]] = []
        is_over = False
        while not is_over:
            try:
                is_over = await self._connect(job, seen)
            except LOST:
                await self._world.sleep(0.3)
            except CallerError:
                break
        self._world.ledger.readings.append(Reading(job, seen, is_over))

    async def _connect(self, job: str, seen: list[tuple[int, str]]) -> bool:
        """Continue where the last connection ended; return whether that is the end."""
        is_open = [True]

        def take(event: Event) -> None:
            if is_open:
                seen.append((event.n, event.type))

        async def stream(engine: Engine) -> bool:
            found = await engine.find(job)
            async for event in engine.events(found, after=len(seen)):
                take(event)
            return True

        try:
            return await self._line.call(stream, self._lots.choice((0.5, 3.0, 60.0)))
        finally:
            is_open.clear()

    async def _send(self, request: Request) -> None:
        """Submit; with a key, repeat the request until its result is known."""
        key = request.options.idempotency_key
        for _ in range(TRIES if key else 1):
            try:
                answer = await self._line.call(
                    lambda engine: engine.submit(
                        request.capability, request.script, request.options
                    )
                )
            except LOST:
                await self._world.sleep(0.3)
            except IdempotencyConflict:
                self._world.ledger.refuse(str(key), request.body)
                return
            except BudgetExhausted:
                self._world.note("a budget refuses", key)
                return
            else:
                self._world.ledger.acknowledge(answer.id, key, request.body)
                return

    def _recent(self, most: int) -> list[str]:
        """Return the most recently submitted jobs."""
        known = self._world.ledger.acknowledged
        return [subject for subject in known if subject.startswith("job_")][-most:]

    def _draw_parts(self) -> tuple[str, Script, Options]:
        request = self._draw(keyed=False)
        return request.capability, request.script, request.options

    def _draw(self, *, keyed: bool) -> Request:
        lots = self._lots
        steps = lots.choices(self._kinds, k=lots.randint(1, 3))
        if steps[-1] in LONG:
            steps.append(lots.choice(("succeed", "give up")))
        script = Script(
            steps=steps,
            seconds=round(lots.choice((0.0, 0.2, 2.0)) * lots.random(), 3),
            progress=lots.choice((0, 1, 3)),
            effect=lots.random() < 0.7,
            children=lots.choice((0, 0, 0, 0, 1)),
            writes=self._world.pen.draw(),
            waits=self._world.patience.draw(),
            text=lots.choice(("", "", "", *TEXTS)),
        )
        options = Options(
            priority=lots.randint(0, 9),
            delay=self._draw_span(2),
            start_by=self._draw_time(0.1),
            deadline=self._draw_time(0.1),
            max_attempts=lots.choice((None, 1, 4)),
            share=lots.choice((None, None, "night", "day")),
            callback=self._draw_callback(),
            completion=self._world.sequels.draw(),
            tokens=self._world.purse.estimate(),
        )
        request = Request(lots.choice(("sim.work", "sim.other")), script, options)
        return self._with_key(request) if keyed else request

    def _with_key(self, request: Request) -> Request:
        key = f"key-{len(self._keyed)}"
        options = replace(request.options, idempotency_key=key)
        self._keyed[key] = replace(request, options=options)
        return self._keyed[key]

    def _draw_callback(self) -> str | None:
        """Draw a URL that says how its receiver answers each attempt."""
        if self._world.happens(0.75):
            return None
        before = self._lots.choices(("fail", "kill process"), (4, 1))
        says = [*before[self._lots.randint(0, 1) :], self._lots.choice(RECEIVERS)]
        return ",".join(says)

    def _draw_span(self, most: float) -> timedelta | None:
        if self._world.happens(0.7):
            return None
        return timedelta(milliseconds=int(self._lots.random() * most * 1000))

    def _draw_time(self, chance: float) -> datetime | None:
        if not self._world.happens(chance):
            return None
        after = self._world.loop.time() + self._lots.random() * 6
        return datetime.fromtimestamp(NOON / 1000 + round(after, 3), UTC)

    def _choose_steps(self) -> list[str]:
        """Draw a few kinds of steps for this world; most of them succeed."""
        some = self._lots.sample(list(STEPS), k=self._lots.randint(1, 6))
        return [*some, "give up", *["succeed"] * 5]


_DEAD: Final = JobFilter(owner=LOCAL, state=JobState.FAILED)
