"""Fires the ticks of schedules, each once across all processes."""

from collections.abc import Iterable

from backburner.domain.blobs.blob import reference
from backburner.domain.errors import (
    BackburnerError,
    BudgetExhausted,
    ConfigurationError,
)
from backburner.domain.jobs.job import Instant, NewJob
from backburner.domain.queues.schedule import ScheduleState, due
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.loop import Loop
from backburner.engine.maintenance.schedule import Schedule, following
from backburner.engine.observability import telemetry
from backburner.engine.submit.budgets import counted
from backburner.engine.submit.submission import Options, Submission
from backburner.ports.faults import Faults
from backburner.ports.log import log
from backburner.ports.notifier import Notification, Notifier
from backburner.ports.store import Store
from backburner.ports.store.schedules import Firing


class Scheduler:
    """
    Submits the jobs of due schedules, by the store's clock.

    A process fires the schedules that its own code declares, at the times that any
    process declared last, so an old release beside a new one fires nothing twice.
    """

    def __init__(  # noqa: PLR0913 - what it needs of the world
        self,
        store: Store,
        notifier: Notifier,
        faults: Faults,
        submission: Submission,
        schedules: Iterable[Schedule],
        *,
        payloads: Payloads | None = None,
        poll: float = 1.0,
    ) -> None:
        self._store = store
        self._notifier = notifier
        self._faults = faults
        self._submission = submission
        self._payloads = payloads or Payloads()
        self._schedules: dict[str, Schedule] = {}
        for schedule in schedules:
            self._add(schedule)
        self._is_planned = False
        self._loop = Loop("schedule", self.fire, every=poll)

    def start(self) -> None:
        """Start, if there are schedules."""
        if self._schedules:
            self._loop.start()

    async def stop(self) -> None:
        """End."""
        await self._loop.stop()

    async def fire(self) -> float | None:
        """Fire due schedules; return the seconds until the next tick."""
        now, states = await self._store.schedules()
        if not self._is_planned:
            await self._store.plan([s.state(now) for s in self._schedules.values()])
            self._is_planned = True
            now, states = await self._store.schedules()
        nexts = [
            await self._advance(state, now)
            for state in states
            if state.name in self._schedules
        ]
        return max(0, min(nexts) - now) / 1000 if nexts else None

    async def _advance(self, state: ScheduleState, now: Instant) -> Instant:
        if state.next_at > now:
            return state.next_at
        ticks, next_at = due(state, following(state.cron, state.timezone), now)
        jobs = await self._payloads.stow_inputs(
            [self._job(self._schedules[state.name], tick) for tick in ticks]
        )
        last_at = ticks[-1] if ticks else None
        self._faults.hit("schedule.firing")
        firing = Firing(state.name, state.next_at, next_at, last_at, jobs)
        fired = await self._fire(firing)
        if fired is not None:
            self._faults.hit("schedule.fired")
            self._tell(state, ticks if fired.jobs or not ticks else (), now)
        else:
            await self._payloads.drop([j.id for j in jobs if reference(j.input)])
        return next_at

    async def _fire(self, firing: Firing) -> Firing | None:
        """
        Fire ticks; a tick that exceeds a budget is skipped.

        Return what was fired; `None` if another process fired it.
        """
        try:
            with counted():
                return firing if await self._store.fire(firing) else None
        except BudgetExhausted:
            log.warning("ticks over budget", schedule=firing.name)
            blobs = [job.id for job in firing.jobs if reference(job.input)]
            await self._payloads.drop(blobs)
            missed = firing._replace(jobs=())
            return missed if await self._store.fire(missed) else None

    def _tell(
        self, state: ScheduleState, ticks: tuple[Instant, ...], now: Instant
    ) -> None:
        if ticks:
            telemetry.schedule_ticks.labels(state.name).inc(len(ticks))
            self._notifier.notify(Notification.WORK | Notification.EVENTS)
        if ticks[:1] != (state.next_at,):
            log.warning("ticks missed", schedule=state.name, delay=now - state.next_at)

    def _job(self, schedule: Schedule, tick: Instant) -> NewJob:
        options = Options(
            owner=schedule.owner,
            tags=(f"schedule:{schedule.name}", f"tick:{tick}"),
            completion=schedule.completion,
        )
        return self._submission.prepare(schedule.capability, schedule.input, options)

    def _add(self, schedule: Schedule) -> None:
        if self._schedules.setdefault(schedule.name, schedule) is not schedule:
            raise ConfigurationError(f"two schedules are named {schedule.name!r}")
        try:
            self._job(schedule, 0)
        except BackburnerError as error:
            raise ConfigurationError(f"schedule {schedule.name!r}: {error}") from None
