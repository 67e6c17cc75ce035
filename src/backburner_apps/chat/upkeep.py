"""Scheduled jobs of `chat`: clean-up, and reports of jobs that run too long."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import sqlalchemy as sa

from backburner import Context, Owner, Schedule, Transaction, capability
from backburner.web import log
from backburner_apps.chat import memories
from backburner_apps.chat.discord import book
from backburner_apps.chat.personalities import Personality, limited
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.chat.tables import forgotten, requests, windows
from backburner_apps.chat.work import QUEUE

UPKEEP_QUEUE: Final = "chat-upkeep"
"""A separate queue, so that scheduled jobs do not wait for replies or vice versa."""
SOME: Final = 1_000
"""Maximum number of rows that one transaction deletes."""
ITSELF: Final = Owner("default", "chat")
"""The owner of scheduled jobs, so that they do not fill the job lists of users."""
HOUR: Final = 60 * 60 * 1000

Deletes = Callable[[Transaction], int]
"""Deletes at most `SOME` rows and returns how many it deleted."""


@capability("chat.cleanup-cache", queue=UPKEEP_QUEUE)
async def clean_up(ctx: Context, _value: None) -> int:
    """Delete old requests and memories above a limit; return how many."""
    deleted = await _until_few(ctx, _old_requests(ctx))
    deleted += await _until_few(ctx, lambda tx: book.clean(tx, SOME))
    for tenant, personality in await ctx.read(limited):
        deleted += await _until_few(ctx, _trimming(tenant, personality))
    return deleted


@capability("chat.find-stuck-jobs", queue=UPKEEP_QUEUE)
async def find_stuck(ctx: Context, _value: None) -> int:
    """Log the jobs that have exceeded their maximum run time; return how many."""
    limit = timedelta(seconds=ctx.settings_of(ChatSettings).lock_seconds)
    stuck = await ctx.running(QUEUE, longer_than=limit)
    for job in stuck:
        log.warning("Stuck job detected", jobId=job.job_id, durationMs=job.duration_ms)
    return len(stuck)


SCHEDULES: Final = (
    Schedule("cleanup-cache", "* * * * *", clean_up, owner=ITSELF),
    Schedule("find-stuck-jobs", "*/30 * * * * *", find_stuck, owner=ITSELF),
)


async def _until_few(ctx: Context, body: Deletes) -> int:
    """Repeat a transaction until it deletes fewer than `SOME` rows; return the sum."""
    total = 0
    while deleted := await ctx.transact(body):
        total += deleted
        if deleted < SOME:
            break
    return total


def _trimming(tenant: str, personality: Personality) -> Deletes:
    return lambda tx: memories.trim(tx, tenant, personality, SOME)


def _old_requests(ctx: Context) -> Deletes:
    keep = round(ctx.settings_of(ChatSettings).keep_hours * HOUR)

    def delete(tx: Transaction) -> int:
        now, r, w, f = tx.now(), requests.c, windows.c, forgotten.c
        key = r.tenant, r.user, r.key
        old = sa.select(*key).where(r.created_at < now - keep).limit(SOME)
        done = requests.delete().where(sa.tuple_(*key).in_(old))
        deleted = int(tx.connection.execute(done).rowcount)
        tx.connection.execute(windows.delete().where(w.minute < now // 60_000 - 1))
        # Only dead letters that are retried by hand can be older than their request.
        tx.connection.execute(forgotten.delete().where(f.at < now - 30 * 24 * HOUR))
        return deleted

    return delete
