"""Random flows and batches of a client: submitted, extended, cancelled and retried."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backburner.domain.errors import BatchNotFound, CallerError, IdempotencyConflict
from backburner.domain.events.event import Event
from backburner.domain.groups.batch import Members
from backburner.domain.jobs.job import Submitted
from backburner.engine.engine import Engine
from backburner.engine.flow import Flow, Planned
from backburner.engine.submit.submission import LOCAL, GroupOptions, Options
from backburner.testing.groups import GroupReading
from backburner.testing.simulation.line import LOST, Line
from backburner.testing.simulation.work import Added, Script
from backburner.testing.simulation.world import World

MOST_STEPS: Final = 8
RECENT: Final = 5
TRIES: Final = 6
STEP_OPTIONS: Final = (
    *("delay", "start_by", "deadline", "max_attempts", "callback", "completion"),
)

Draw = Callable[[], tuple[str, Script, Options]]
Ask = Callable[[Engine], Awaitable[Submitted]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a flow or batch, as a client may repeat it."""

    body: str
    key: str | None
    ask: Ask


class Groups:
    """Uses flows and batches over connections that break."""

    def __init__(
        self, world: World, line: Line, draw: Draw, keyed: dict[str, Asked]
    ) -> None:
        self._world = world
        self._line = line
        self._lots = world.random
        self._draw = draw
        self._keyed = keyed
        """Requests with an idempotency key, of all clients."""
        self.readers: list[asyncio.Task[None]] = []

    def actions(self) -> Sequence[tuple[Callable[[], Awaitable[None]], int]]:
        """Return the operations with their frequencies."""
        return (
            (self._submit_flow, 7),
            (self._open_batch, 4),
            (self._fill_batch, 2),
            (self._ask_again, 1),
            (self._ask_other, 1),
            (self._cancel, 1),
            (self._cancel_step, 1),
            (self._retry, 4),
            (self._follow, 1),
        )

    async def seal(self) -> None:
        """Seal every batch, so that it can end."""
        for batch in self._recent("batch", None):
            while True:
                try:
                    await self._fill(batch, Members(), seal=True)
                except LOST:
                    await self._world.sleep(0.3)
                except BatchNotFound:
                    break
                else:
                    break

    async def _submit_flow(self) -> None:
        flow, options = self._draw_flow(MOST_STEPS), self._draw_options("flow")

        async def ask(engine: Engine) -> Submitted:
            return (await engine.flows.submit([(flow, options)]))[0]

        await self._send(Asked(repr((flow.steps, options)), _key(options), ask))

    async def _open_batch(self) -> None:
        jobs = [self._draw() for _ in range(self._lots.choice((0, 1, 3)))]
        flows = [self._draw_flow(3) for _ in range(self._lots.choice((0, 1, 2)))]
        options = self._draw_options("batch")
        size = len(jobs) + len(flows)
        terms: dict[str, Any] = {
            "expected": self._lots.choice((None, None, size, size + 2)),
            "completion": self._lots.choice(
                (None, {"capability": "sim.done"}, _COMPLETION)
            ),
            "sealed": self._lots.choice((None, None, None, False)),
        }

        async def ask(engine: Engine) -> Submitted:
            members = _members(engine, jobs, flows)
            return await engine.batches.open(options, members, **terms)

        body = repr((jobs, [flow.steps for flow in flows], options, terms))
        await self._send(Asked(body, _key(options), ask))

    async def _fill_batch(self) -> None:
        if batches := self._recent("batch"):
            jobs = [self._draw() for _ in range(self._lots.randint(0, 2))]
            flows = [self._draw_flow(3) for _ in range(self._lots.randint(0, 1))]
            batch, seal = self._lots.choice(batches), self._world.happens(0.3)
            await self._line.call(
                lambda engine: engine.batches.fill(
                    batch, LOCAL, _members(engine, jobs, flows), seal=seal
                )
            )

    async def _fill(self, batch: str, members: Members, *, seal: bool) -> None:
        await self._line.call(
            lambda engine: engine.batches.fill(batch, LOCAL, members, seal=seal)
        )

    async def _ask_again(self) -> None:
        if self._keyed:
            await self._send(self._lots.choice(list(self._keyed.values())))

    async def _ask_other(self) -> None:
        """Use a flow's key for another flow."""
        keys = [key for key in self._keyed if key.startswith("flow")]
        if keys:
            key = self._lots.choice(keys)
            flow, options = self._draw_flow(1), GroupOptions(idempotency_key=key)

            async def ask(engine: Engine) -> Submitted:
                return (await engine.flows.submit([(flow, options)]))[0]

            await self._send(Asked(repr((flow.steps, options)), key, ask))

    async def _cancel(self) -> None:
        if groups := [*self._recent("flow"), *self._recent("batch", 1)]:
            group = self._lots.choice(groups)
            await self._line.call(lambda engine: _verbs(engine, group).cancel(group))

    async def _cancel_step(self) -> None:
        if flows := self._recent("flow"):
            flow = self._lots.choice(flows)
            lot = self._lots.random()

            async def cancel(engine: Engine) -> None:
                steps = await engine.flows.steps(await engine.flows.find(flow))
                if steps:  # or it was deleted meanwhile
                    job = steps[int(lot * len(steps))].job.id
                    await engine.cancel(job, reason=f"asked: {job}")

            await self._line.call(cancel)

    async def _retry(self) -> None:
        if groups := [*self._recent("flow"), *self._recent("batch")]:
            group = self._lots.choice(groups)
            tasks = [self._world.spawn(self._retry_one(group)) for _ in range(2)]
            for task in tasks:
                await task

    async def _retry_one(self, group: str) -> None:
        try:
            await self._line.call(lambda engine: _verbs(engine, group).retry(group))
        except (*LOST, CallerError) as error:
            self._world.note("retry met", type(error).__name__)

    async def _follow(self) -> None:
        if groups := [*self._recent("flow"), *self._recent("batch")]:
            group = self._lots.choice(groups)
            self.readers.append(self._world.spawn(self._read(group)))

    async def _read(self, group: str) -> None:
        """Read a group's events to their end, over as many connections as needed."""
        seen: list[Event] = []
        is_over = False
        while not is_over:
            try:
                is_over = await self._connect(group, seen)
            except LOST:
                await self._world.sleep(0.3)
            except CallerError:
                break
        self._world.ledger.group_readings.append(
            GroupReading(group, [told.seq for told in seen], is_over)
        )

    async def _connect(self, group: str, seen: list[Event]) -> bool:
        is_open = [True]

        def take(event: Event) -> None:
            if is_open:
                seen.append(event)

        async def stream(engine: Engine) -> bool:
            verbs = _verbs(engine, group)
            after = seen[-1].seq if seen else 0
            async for event in verbs.events(await verbs.find(group), after=after):
                take(event)
            return True

        try:
            return await self._line.call(stream, self._lots.choice((0.5, 3.0, 60.0)))
        finally:
            is_open.clear()

    async def _send(self, asked: Asked) -> None:
        """Send a request; with a key, repeat it until its result is known."""
        if asked.key is not None:
            self._keyed.setdefault(asked.key, asked)
        for _ in range(TRIES if asked.key else 1):
            try:
                answer = await self._line.call(asked.ask)
            except LOST:
                await self._world.sleep(0.3)
            except IdempotencyConflict:
                self._world.ledger.refuse(str(asked.key), asked.body)
                return
            else:
                self._world.ledger.acknowledge(answer.id, asked.key, asked.body)
                return

    def _recent(self, kind: str, most: int | None = RECENT) -> list[str]:
        known = dict.fromkeys(self._world.ledger.acknowledged)
        mine = [subject for subject in known if subject.startswith(f"{kind}_")]
        return mine if most is None else mine[-most:]

    def _draw_options(self, kind: str) -> GroupOptions:
        _, _, options = self._draw()
        key = f"{kind}-{len(self._keyed)}" if self._world.happens(0.4) else None
        return GroupOptions(
            deadline=options.deadline, idempotency_key=key, callback=options.callback
        )

    def _draw_flow(self, most: int) -> Flow:
        flow, scripts = Flow(), list[tuple[Planned, Script]]()
        is_quick, size = self._world.happens(0.3), self._lots.randint(1, most)
        for number in range(size):
            count = min(number, self._lots.choice((0, 1, 1, 2, 3)))
            if is_quick:  # all at once, and then a step that waits for all of them
                count = number if number == size - 1 else 0
            after = self._lots.sample(flow.steps, k=count)
            edges = [s.anyway if self._world.happens(0.3) else s for s in after]
            capability, script, options = self._draw_step(is_quick=is_quick)
            name = f"s{number}"
            if edges and edges == after and self._world.happens(0.3):
                flow.add("sim.take", after=edges, name=name)
                continue
            chosen = {name: getattr(options, name) for name in STEP_OPTIONS}
            step = flow.add(capability, script, after=edges, name=name, **chosen)
            scripts.append((step, script))
        for step, script in scripts:
            if self._world.happens(0.15):
                script.adds = self._draw_added(flow, step)
        return flow

    def _draw_step(self, *, is_quick: bool) -> tuple[str, Script, Options]:
        """Draw a step; quick ones end at the same time."""
        if is_quick:
            outcome = self._lots.choice(("succeed", "succeed", "succeed", "give up"))
            return "sim.work", Script(steps=[outcome]), Options()
        return self._draw()

    def _draw_added(self, flow: Flow, adding: Planned) -> list[Added]:
        """Draw steps to add, some of them before a step that waits for this one."""
        names = [step.name for step in flow.steps]
        waiting = [
            step.name
            for step in flow.steps
            if any(edge.step == adding.name for edge in step.needs)
        ]
        lots = self._lots
        return [
            Added(
                steps=[lots.choice(("succeed", "succeed", "give up", "fail"))],
                after=lots.sample(names, k=1) if lots.random() < 0.3 else [],
                follows=lots.random() < 0.5,
                continues=lots.random() < 0.3,
                before=waiting[:1] if lots.random() < 0.5 else [],
            )
            for _ in range(lots.randint(1, 3))
        ]


_COMPLETION: Final = {"capability": "sim.work", "input": {"steps": ["succeed"]}}


def _verbs(engine: Engine, group: str) -> Any:
    return engine.flows if group.startswith("flow_") else engine.batches


def _key(options: GroupOptions) -> str | None:
    return options.idempotency_key


def _members(
    engine: Engine, jobs: Sequence[tuple[str, Script, Options]], flows: Sequence[Flow]
) -> Members:
    return engine.batches.members(jobs, [(flow, GroupOptions()) for flow in flows])
