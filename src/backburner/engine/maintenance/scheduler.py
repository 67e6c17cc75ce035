"""Fires the ticks of schedules, each once across all processes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from backburner.domain.blobs.blob import reference
from backburner.domain.errors import (
    BackburnerError,
    BudgetExhausted,
    CallerError,
    ConfigurationError,
    ScheduleNotFound,
)
from backburner.domain.jobs.job import Instant, NewJob
from backburner.domain.queues.schedule import ScheduleState, due
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.loop import Loop
from backburner.engine.maintenance.schedule import Schedule, following
from backburner.engine.observability import telemetry
from backburner.engine.submit.budgets import counted
from backburner.engine.submit.submission import Options, Submission, refused_field
from backburner.ports.faults import Faults
from backburner.ports.log import log
from backburner.ports.notifier import Notification, Notifier
from backburner.ports.store import Store
from backburner.ports.store.keys import AuditEntry
from backburner.ports.store.schedules import Firing

LOOK_SECONDS: Final = 5.0
"""How often a process without declared schedules looks for saved ones."""

MAX_INPUT: Final = 64 * 1024
MOST_SAVED: Final = 1_000
"""Every process reads all saved schedules with their inputs, every few seconds."""

AHEAD_MS: Final = 3_600_000
"""A tick that is later than this from now was fired by a wrong clock."""


class Scheduler:
    """
    Submits the jobs of due schedules, by the store's clock.

    A process fires the schedules that its own code declares, at the times that any
    process declared last, so an old release beside a new one fires nothing twice. It
    also fires those that were saved over HTTP, if it knows their capability.
    """

    def __init__(  # noqa: PLR0913 - one argument per collaborator
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
        self._looked_at: Instant | None = None
        # Without declared schedules it rarely looks for saved ones.
        every = poll if self._schedules else max(poll, LOOK_SECONDS)
        self._loop = Loop("schedule", self.fire, every=every)

    def start(self) -> None:
        """Start."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop."""
        await self._loop.stop()

    async def fire(self) -> float | None:
        """Fire due schedules; return the seconds until the next tick."""
        now, states = await self._store.schedules()
        if self._schedules and not self._is_planned:
            await self._store.plan([s.state(now) for s in self._schedules.values()])
            self._is_planned = True
            now, states = await self._store.schedules()
        is_set_back = self._looked_at is None or now < self._looked_at
        if not is_set_back:
            self._looked_at = now
        nexts: list[Instant] = []
        failures: list[Exception] = []
        for state in states:
            if not self._fires(state):
                continue
            try:
                if is_set_back or _is_ahead(state, now):
                    found = await self._set_back(state, now)
                else:
                    found = state
                nexts.append(await self._advance(found, now))
            except Exception as error:  # noqa: BLE001 - it must not hold up the others
                failures.append(error)
        if failures:
            raise failures[0]  # what was set back is looked for again
        self._looked_at = now
        return max(0, min(nexts) - now) / 1000 if nexts else None

    def _fires(self, state: ScheduleState) -> bool:
        """Return whether this process can fire a schedule: it has its capability."""
        if state.paused:
            return False
        if state.owner is None:
            return state.name in self._schedules
        return self._submission.knows(state.capability)

    async def prepare(self, name: str) -> NewJob:
        """Return a job as a tick of the schedule would submit it now."""
        now, states = await self._store.schedules()
        found = next((state for state in states if state.name == name), None)
        if found is None or (found.owner is None and name not in self._schedules):
            raise ScheduleNotFound("this server knows no schedule of this name")
        return self._job(self._schedule(found), now)

    async def save(
        self, schedule: Schedule, entries: Sequence[AuditEntry] = ()
    ) -> bool:
        """
        Store a schedule that no code declares, with its input as JSON.

        Returns `False` if code declares a schedule of the same name. Otherwise
        `entries` are added to the audit log with it.
        """
        if len(schedule.input) > MAX_INPUT:
            raise refused_field("input", f"must be at most {MAX_INPUT // 1024} KiB")
        self._job(schedule, 0)
        now, known = await self._store.schedules()
        others = [one for one in known if one.owner and one.name != schedule.name]
        if len(others) >= MOST_SAVED:
            raise refused_field(
                "name", f"at most {MOST_SAVED:,} schedules can be saved"
            )
        state = replace(
            schedule.state(now), owner=schedule.owner, input=schedule.input.decode()
        )
        return await self._store.save_schedule(state, entries)

    def _schedule(self, state: ScheduleState) -> Schedule:
        """Return a schedule that the code declares, or that was saved."""
        if state.owner is None:
            return self._schedules[state.name]
        return Schedule(
            state.name,
            state.cron,
            state.capability,
            (state.input or "null").encode(),
            state.timezone,
            state.missed,
            state.owner,
        )

    async def _set_back(self, state: ScheduleState, now: Instant) -> ScheduleState:
        """
        Return a schedule as it is by a clock that was set back since it was advanced.

        Of a schedule with `run_all` every tick up to the last one was fired.
        """
        after = following(state.cron, state.timezone)
        # A tick since the last look is due.
        seen = now - int(LOOK_SECONDS * 1000)
        next_at, last_at = state.next_at, state.last_at
        if next_at > after(now):
            next_at = after(seen)
        if _is_ahead(state, now):  # also if it was paused meanwhile
            last_at = seen
        if (next_at, last_at) == (state.next_at, state.last_at):
            return state
        saved = None if state.owner is None else state
        await self._store.fire(
            Firing(state.name, state.next_at, next_at, last_at, (), saved)
        )
        behind = state.next_at - next_at
        log.warning("clock was set back", schedule=state.name, delay=behind)
        return replace(state, next_at=next_at, last_at=last_at)

    async def _advance(self, state: ScheduleState, now: Instant) -> Instant:
        if state.next_at > now:
            return state.next_at
        ticks, next_at = due(state, following(state.cron, state.timezone), now)
        jobs = await self._payloads.stow_inputs(self._jobs(state, ticks))
        last_at = ticks[-1] if ticks else None
        self._faults.hit("schedule.firing")
        saved = None if state.owner is None else state
        firing = Firing(state.name, state.next_at, next_at, last_at, jobs, saved)
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
            log.warning("ticks skipped: budget exhausted", schedule=firing.name)
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

    def _jobs(self, state: ScheduleState, ticks: Sequence[Instant]) -> list[NewJob]:
        """Return the jobs of ticks; none if a saved input is not valid any more."""
        schedule = self._schedule(state)
        try:
            return [self._job(schedule, tick) for tick in ticks]
        except CallerError as error:
            log.error("schedule cannot fire", schedule=state.name, code=error.code)
            return []

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


def _is_ahead(state: ScheduleState, now: Instant) -> bool:
    """Return whether its last tick was fired by a wrong clock and holds up others."""
    is_late = state.last_at is not None and state.last_at > now + AHEAD_MS
    return is_late and state.missed != "run_all"
