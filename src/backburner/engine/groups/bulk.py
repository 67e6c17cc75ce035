"""
Bulk actions: one job cancels or retries many, page by page, and reports its progress.

Only jobs that were submitted before the action are reached. Each page is a step whose
result is stored, so a worker that takes over continues after the last page. A page
that a lost worker had begun is done again: jobs that are already cancelled are skipped.

A job whose budget has too little left is skipped, and the others are retried.

A staged retry tries one job, then ten, then all. It stops if more than half of a stage
fail again, or if a stage takes too long. The choice of a stage's jobs is stored before
they are retried, so a worker that takes over retries the same jobs, and none that was
retried since.

An action goes on only while the API key that requested it is valid: this is checked
before each page and each stage.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final, Literal

import orjson
from pydantic import BaseModel

from backburner.domain.errors import TooManyWaiting
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
from backburner.engine.groups.retrying import Retries, can_be_retried
from backburner.engine.registry import Capability, capability
from backburner.engine.run.context import Context
from backburner.ports.store import Store
from backburner.ports.store.maintenance import JobFilter

CAPABILITY: Final = "backburner.bulk"
PAGE: Final = 200
MOST_IDS: Final = 1_000
REACH: Final = 30_000
"""How many jobs one read examines for filters that have no index."""
STAGES: Final = (1, 10)
SOONEST: Final = timedelta(seconds=1)
LATEST: Final = timedelta(seconds=30)
"""The shortest and the longest pause between two looks at the jobs of a stage."""
LONGEST_STAGE: Final = timedelta(hours=24)
MOST_WAITING: Final = 20
"""How many bulk actions of a user, or of a key for all users, may wait."""
RETRY: Final = RetryPolicy(max_attempts=10)
OPEN: Final = frozenset(JobState) - FINAL

EVERYBODY: Final = "all users"
"""The owner of actions that reach beyond one user; no key can act as this user."""

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
    key: str | None = None
    """The id of the API key that requested it; `None` in development."""


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
    last: int | None = None
    """The position of further jobs to choose from."""


class Trial(BaseModel):
    """The jobs of a stage that were retried."""

    ids: list[str] = []
    """Without those that a budget refused."""
    changed: int = 0
    at: Instant = 0
    """When they were retried."""
    stopped: str | None = None
    """Why no more were retried."""


class Page(BaseModel):
    """The result of one page of jobs, and the position of the next page."""

    changed: int
    skipped: int
    over_budget: int = 0
    last: int | None
    stopped: str | None = None
    """Why it and those after it were not reached."""


class BulkResult(BaseModel):
    """The result of a bulk action."""

    action: Action
    changed: int
    """Jobs that this action changed, except those that a lost worker did not report."""
    skipped: int = 0
    """
    Jobs that had ended, or had not failed, by the time they were reached, or whose
    budget had too little left.
    """
    over_budget: int = 0
    """Those of them whose budget had too little left."""
    stages: list[Stage] = []
    stopped: str | None = None
    """Why it did not go on."""


def new_job(
    job_id: str,
    now: Instant,
    caller: Owner,
    asked: BulkInput,
    request_id: str | None,
) -> NewJob:
    """
    Return the job that runs a bulk action.

    It belongs to the caller only if it reaches nobody else: other keys that act as the
    same user must not control what they could not have asked for.
    """
    owner = caller if asked.user == caller.user else Owner(caller.tenant, EVERYBODY)
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
        # Actions of one key must not use up the room of another key's.
        share=owner.user if owner == caller else f"{EVERYBODY}/{asked.key}",
    )


def summary(job_id: str, asked: BulkInput) -> str:
    """
    Return what a bulk action changes, in few characters, for the audit log.

    Of ids it has the number and a digest: their SHA-256, one per line. The input of
    the job has all of them, for as long as the job is kept.
    """
    told: dict[str, Any] = {"job": job_id}
    told |= {"reach": "tenant"} if asked.user is None else {"user": asked.user}
    if asked.ids is None:
        told |= {"where": asked.where, "matched": asked.matched}
    else:
        digest = sha256("\n".join(asked.ids).encode()).hexdigest()
        told |= {"ids": len(asked.ids), "sha256": digest}
    if asked.staged:
        told["staged"] = True
    return orjson.dumps(told).decode()


async def check_room(store: Store, new: NewJob) -> None:
    """Raise `TooManyWaiting` if too many bulk actions of a user wait already."""
    waiting = await store.crowd(new)
    if waiting >= MOST_WAITING:
        raise TooManyWaiting(BULK, depth=waiting, cap=MOST_WAITING)


def pause_after(waited: timedelta) -> timedelta:
    """Return the pause before the next look at a stage that began so long ago."""
    return min(max(waited / 10, SOONEST), LATEST)


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
        # All stages may take their time; what takes longer is stopped with a reason.
        patience=(len(STAGES) + 1) * LONGEST_STAGE,
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
            if done.stopped is not None:
                result.stopped = done.stopped
                return result
            result.changed += done.changed
            result.skipped += done.skipped
            result.over_budget += done.over_budget
            is_last = done.last is None
            await self._report(result, is_last=is_last)
            if is_last:
                return result
            last, number = done.last, number + 1

    async def _flaw(self) -> str | None:
        """Return why the action must not go on: its key is not valid any more."""
        key_id = self._asked.key
        if key_id is None:
            return None
        key = await self._engine.store.find_key(key_id)
        flaw = "was deleted" if key is None else key.flaw(self._engine.now())
        return None if flaw is None else f"the API key {key_id} {flaw}"

    async def _page(self, number: int, last: int | None) -> Page:
        flaw = await self._flaw()
        if flaw is not None:
            return Page(changed=0, skipped=0, last=None, stopped=flaw)
        engine, ids = self._engine, self._asked.ids
        if ids is None:
            jobs = await self._next(last, PAGE)
            done = await self._change(jobs)
            last = None if len(jobs) < PAGE else jobs[-1].seq
            return _page(done, len(jobs), last)
        part = ids[number * PAGE : (number + 1) * PAGE]
        seen = self._where.owner
        found = await engine.store.find(part)
        done = await self._change(
            [
                job
                for job in found
                if seen is not None and seen.covers(job.owner) and self._is_open(job)
            ]
        )
        more = len(ids) > (number + 1) * PAGE
        return _page(done, len(part), 0 if more else None)

    def _is_open(self, job: Job) -> bool:
        is_retry = self._asked.action == "retry"
        return job.state is JobState.FAILED if is_retry else job.state in OPEN

    async def _next(self, last: int | None, limit: int) -> Sequence[Job]:
        """Return the next jobs in states in which the action has an effect."""
        where = able(self._where, self._asked.action)
        if where is None:
            return ()
        jobs: list[Job] = []
        onward = last
        while True:
            page, onward = await self._engine.store.walk(
                where, before=onward, limit=limit - len(jobs), reach=REACH
            )
            jobs += page
            if onward is None or len(jobs) >= limit:
                return jobs

    async def _change(self, jobs: Sequence[Job]) -> Retries:
        # Skip other bulk actions, so that an action does not end itself.
        done = {self._ctx.job.id, *self._tried}
        others = [job for job in jobs if job.id not in done]
        if self._asked.action == "retry":
            return await self._engine.retry_jobs(others)
        return Retries(await self._engine.cancel_jobs(others), frozenset())

    async def _report(self, result: BulkResult, *, is_last: bool = False) -> None:
        done = result.changed + result.skipped
        total = done if is_last else max(self._asked.matched, done)
        verb = "retried" if self._asked.action == "retry" else "cancelled"
        message = f"{result.changed} {verb}, {result.skipped} skipped"
        if result.over_budget:
            message += f" ({result.over_budget} because a budget has too little left)"
        await self._ctx.progress(done, total or 1, message)

    async def _try_stages(self, result: BulkResult) -> Snooze | None:
        """Retry one job, then ten, each after the stage before it has succeeded."""
        for size in STAGES:
            trial = await self._try(size)
            stage, open_ = await self._look_at(trial)
            if stage.ids or trial.stopped is None:
                result.stages.append(stage)
            self._tried.update(stage.ids)
            result.changed += trial.changed
            result.skipped += len(stage.ids) - trial.changed
            result.stopped = trial.stopped or (await self._flaw() if open_ else None)
            if result.stopped is not None:
                return None
            if 2 * stage.failed > len(stage.ids):
                result.stopped = (
                    f"{stage.failed} of {len(stage.ids)} failed again: "
                    "the cause is not fixed"
                )
                return None
            if open_:
                waited = timedelta(milliseconds=self._engine.now() - trial.at)
                if waited >= LONGEST_STAGE:
                    hours = LONGEST_STAGE // timedelta(hours=1)
                    result.stopped = (
                        f"{open_} of {len(stage.ids)} had not ended {hours} hours "
                        "after their retry"
                    )
                    return None
                await self._report(result)
                jobs = "job" if open_ == 1 else "jobs"
                reason = f"waiting for {open_} retried {jobs}"
                return Snooze(pause_after(waited), reason)
        return None

    async def _try(self, size: int) -> Trial:
        """Retry so many jobs that no budget refuses."""
        trial, last, place = Trial(), None, ""
        while True:
            limit = size if last is None else PAGE
            choice = await self._ctx.step(
                f"stage of {size}{place}", self._choose, limit, last
            )
            more = await self._ctx.step(
                f"retries of the stage of {size}{place}",
                *(self._retry, choice, size - len(trial.ids)),
            )
            trial.ids += more.ids
            trial.changed += more.changed
            trial.at, trial.stopped = more.at, more.stopped
            if trial.stopped is not None:
                return trial
            last, place = choice.last, f" after {choice.last}"
            if last is None or len(trial.ids) >= size:
                return trial

    async def _choose(self, limit: int, last: int | None) -> Choice:
        found = await self._next(last, limit)
        jobs = [job for job in found if can_be_retried(job)]
        return Choice(
            ids=[job.id for job in jobs],
            generations=[job.generation for job in jobs],
            last=None if len(found) < limit else found[-1].seq,
        )

    async def _retry(self, choice: Choice, most: int) -> Trial:
        """
        Retry some of the chosen jobs, in their order, until enough are retried.

        Those that were retried since, perhaps by this action, whose worker was lost,
        count and are not retried again.
        """
        chosen = dict(zip(choice.ids, choice.generations, strict=False))
        found = {job.id: job for job in await self._engine.store.find(choice.ids)}
        jobs = [found[job_id] for job_id in choice.ids if job_id in found]
        # A choice that an earlier release stored has no generations: it was retried.
        ids = [job.id for job in jobs if job.generation != chosen.get(job.id)]
        rest = [job for job in jobs if job.generation == chosen.get(job.id)]
        changed, flaw = 0, await self._flaw()
        while rest and len(ids) < most and flaw is None:
            room = most - len(ids)
            some, rest = rest[:room], rest[room:]
            done = await self._engine.retry_jobs(some)
            changed += done.retried
            ids += [job.id for job in some if job.id not in done.over_budget]
            flaw = await self._flaw() if rest else None
        now = self._engine.now()
        return Trial(ids=ids, changed=changed, at=now, stopped=flaw)

    async def _look_at(self, trial: Trial) -> tuple[Stage, int]:
        """Return how the jobs of a stage have ended, and how many have not."""
        found = await self._engine.store.find(trial.ids)
        stage = Stage(
            ids=trial.ids,
            failed=sum(job.state is JobState.FAILED for job in found),
            succeeded=sum(job.state is JobState.SUCCEEDED for job in found),
        )
        return stage, sum(not job.state.is_final for job in found)


def _page(done: Retries, size: int, last: int | None) -> Page:
    return Page(
        changed=done.retried,
        skipped=size - done.retried,
        over_budget=len(done.over_budget),
        last=last,
    )


def _filter(where: dict[str, Any]) -> JobFilter:
    state = where.get("state")
    states = frozenset(map(JobState, where.get("states", ())))
    only = None if state is None else JobState(state)
    return JobFilter(**{**where, "state": only, "states": states})
