"""
Bulk actions: one job cancels or retries many, page by page, and reports its progress.

Only jobs that were submitted before the action are reached. Each page is a step whose
result is stored, so a worker that takes over continues after the last page. A page
that a lost worker had begun is done again: jobs that are already cancelled are skipped.

A staged retry tries one job, then ten, then all. It stops if more than half of a stage
fail again. The choice of a stage's jobs is stored before they are retried, so a worker
that takes over retries the same jobs, and none that was retried since.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Literal

import orjson
from pydantic import BaseModel

from backburner.domain.jobs.job import (
    FINAL,
    Instant,
    Job,
    JobState,
    NewJob,
    Owner,
    Tenant,
    Visibility,
)
from backburner.domain.jobs.outcome import Snooze
from backburner.domain.jobs.retry import RetryPolicy
from backburner.domain.queues.queue import BULK
from backburner.engine.engine import Engine
from backburner.engine.registry import Capability, capability
from backburner.engine.run.context import Context
from backburner.ports.store.maintenance import JobFilter

CAPABILITY: Final = "backburner.bulk"
PAGE: Final = 200
MOST_IDS: Final = 1_000
STAGES: Final = (1, 10)
LOOK_EVERY: Final = timedelta(seconds=1)
RETRY: Final = RetryPolicy(max_attempts=10)
OPEN: Final = frozenset(JobState) - FINAL

Action = Literal["cancel", "retry"]


class BulkInput(BaseModel):
    """The action and the jobs that it applies to."""

    action: Action
    ids: list[str] | None = None
    """The ids of jobs; otherwise all that match `where`."""
    where: dict[str, Any] = {}
    """Fields of `JobFilter`, except its owner."""
    user: str | None = None
    """The user whose jobs are affected; `None`: the whole tenant."""
    staged: bool = False
    matched: int = 0
    """How many jobs matched when it was asked for."""


class Stage(BaseModel):
    """One stage of a staged retry."""

    ids: list[str]
    succeeded: int = 0
    failed: int = 0


class Choice(BaseModel):
    """The jobs of a stage, before they are retried."""

    ids: list[str]
    generations: list[int] = []
    """The generation in which each of them had failed."""


class Page(BaseModel):
    """The result of one page of jobs, and the position of the next page."""

    changed: int
    skipped: int
    last: int | None


class BulkResult(BaseModel):
    """The result of a bulk action."""

    action: Action
    changed: int
    """Jobs that this action changed, except those that a lost worker did not report."""
    skipped: int = 0
    """Jobs that had ended, or had not failed, by the time they were reached."""
    stages: list[Stage] = []
    stopped: str | None = None
    """Why a staged retry did not go on."""


def new_job(
    job_id: str, now: Instant, owner: Owner, asked: BulkInput, request_id: str | None
) -> NewJob:
    """Return the job that runs a bulk action."""
    return NewJob(
        id=job_id,
        owner=owner,
        capability=CAPABILITY,
        queue=BULK,
        input=orjson.dumps(asked.model_dump(mode="json")).decode(),
        created_at=now,
        max_attempts=RETRY.max_attempts,
        tags=(f"bulk:{asked.action}",),
        request_id=request_id,
        tokens=0,
    )


def able(where: JobFilter, action: Action) -> JobFilter | None:
    """Select the jobs in states in which an action has an effect; `None` if in none."""
    effective = {JobState.FAILED} if action == "retry" else OPEN
    named = {where.state} if where.state else where.states or effective
    states = frozenset(named & effective)
    return replace(where, state=None, states=states) if states else None


def bulk(engine: Engine) -> Capability[BulkInput, BulkResult]:
    """Return the capability that runs bulk actions."""

    @capability(
        CAPABILITY,
        queue=BULK,
        retry=RETRY,
        timeout=timedelta(hours=1),
        patience=timedelta(days=1),
    )
    async def handle(ctx: Context, asked: BulkInput) -> BulkResult | Snooze:
        """Cancel or retry many jobs."""
        return await _Run(engine, ctx, asked).run()

    return handle


class _Run:
    """One run of a bulk action."""

    def __init__(self, engine: Engine, ctx: Context, asked: BulkInput) -> None:
        self._engine = engine
        self._ctx = ctx
        self._asked = asked
        self._tried: set[str] = set()
        """The jobs of the stages: those that failed again are not retried again."""
        owner = ctx.job.owner
        reach: Visibility = (
            Tenant(owner.tenant)
            if asked.user is None
            else Owner(owner.tenant, asked.user)
        )
        self._where = replace(
            _filter(asked.where), owner=reach, oldest_first=asked.action == "retry"
        )
        if self._where.until is None or self._where.until > ctx.job.created_at:
            self._where = replace(self._where, until=ctx.job.created_at)

    async def run(self) -> BulkResult | Snooze:
        asked, result = self._asked, BulkResult(action=self._asked.action, changed=0)
        if asked.staged:
            waits = await self._try_stages(result)
            if waits is not None:
                return waits
            if result.stopped is not None:
                return result
        last, number = None, 0
        while True:
            done = await self._ctx.step(f"page {number}", self._page, number, last)
            result.changed += done.changed
            result.skipped += done.skipped
            is_last = done.last is None
            await self._report(result, is_last=is_last)
            if is_last:
                return result
            last, number = done.last, number + 1

    async def _page(self, number: int, last: int | None) -> Page:
        engine, ids = self._engine, self._asked.ids
        if ids is None:
            jobs = await self._next(last, PAGE)
            changed = await self._change(jobs)
            ended = len(jobs) < PAGE
            return Page(
                changed=changed,
                skipped=len(jobs) - changed,
                last=None if ended else jobs[-1].seq,
            )
        part = ids[number * PAGE : (number + 1) * PAGE]
        seen = self._where.owner
        found = await engine.store.find(part)
        changed = await self._change(
            [
                job
                for job in found
                if seen is not None and seen.covers(job.owner) and self._is_open(job)
            ]
        )
        more = len(ids) > (number + 1) * PAGE
        return Page(
            changed=changed, skipped=len(part) - changed, last=0 if more else None
        )

    def _is_open(self, job: Job) -> bool:
        is_retry = self._asked.action == "retry"
        return job.state is JobState.FAILED if is_retry else job.state in OPEN

    async def _next(self, last: int | None, limit: int) -> Sequence[Job]:
        """Return the next jobs in states in which the action has an effect."""
        where = able(self._where, self._asked.action)
        if where is None:
            return ()
        return await self._engine.jobs(where, before=last, limit=limit)

    async def _change(self, jobs: Sequence[Job]) -> int:
        # Skip other bulk actions, so that an action does not end itself.
        done = {self._ctx.job.id, *self._tried}
        others = [job for job in jobs if job.id not in done]
        if self._asked.action == "retry":
            return await self._engine.retry_jobs(others)
        return await self._engine.cancel_jobs(others)

    async def _report(self, result: BulkResult, *, is_last: bool = False) -> None:
        done = result.changed + result.skipped
        total = done if is_last else max(self._asked.matched, done)
        verb = "retried" if self._asked.action == "retry" else "cancelled"
        message = f"{result.changed} {verb}, {result.skipped} skipped"
        await self._ctx.progress(done, total or 1, message)

    async def _try_stages(self, result: BulkResult) -> Snooze | None:
        """Retry one job, then ten, each after the stage before it has succeeded."""
        for size in STAGES:
            choice = await self._ctx.step(f"stage of {size}", self._choose, size)
            retried = await self._ctx.step(
                f"retry of the stage of {size}", self._retry, choice
            )
            stage, open_ = await self._look_at(choice)
            result.stages.append(stage)
            self._tried.update(stage.ids)
            result.changed += retried
            result.skipped += len(stage.ids) - retried
            if 2 * stage.failed > len(stage.ids):
                result.stopped = (
                    f"{stage.failed} of {len(stage.ids)} failed again: "
                    "the cause is not fixed"
                )
                return None
            if open_:
                await self._report(result)
                return Snooze(LOOK_EVERY, f"waiting for {open_} retried jobs")
        return None

    async def _choose(self, size: int) -> Choice:
        jobs = await self._next(None, size)
        return Choice(
            ids=[job.id for job in jobs], generations=[job.generation for job in jobs]
        )

    async def _retry(self, choice: Choice) -> int:
        """Retry the chosen jobs, except those that were retried since."""
        chosen = dict(zip(choice.ids, choice.generations, strict=False))
        found = await self._engine.store.find(choice.ids)
        return await self._engine.retry_jobs(
            [job for job in found if job.generation == chosen.get(job.id)]
        )

    async def _look_at(self, choice: Choice) -> tuple[Stage, int]:
        """Return how the jobs of a stage have ended, and how many have not."""
        found = await self._engine.store.find(choice.ids)
        stage = Stage(
            ids=choice.ids,
            failed=sum(job.state is JobState.FAILED for job in found),
            succeeded=sum(job.state is JobState.SUCCEEDED for job in found),
        )
        return stage, sum(not job.state.is_final for job in found)


def _filter(where: dict[str, Any]) -> JobFilter:
    state = where.get("state")
    states = frozenset(map(JobState, where.get("states", ())))
    only = None if state is None else JobState(state)
    return JobFilter(**{**where, "state": only, "states": states})
