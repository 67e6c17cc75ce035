"""What `chat` does by the clock: it cleans up, and reports jobs that run too long."""

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
"""Of its own, so that neither waits for the other."""
SOME: Final = 1_000
"""The most rows that one transaction deletes."""
ITSELF: Final = Owner("default", "chat")
"""Whose these jobs are: nobody's list is full of them."""
HOUR: Final = 60 * 60 * 1000

Deletes = Callable[[Transaction], int]
"""Deletes at most `SOME` rows and returns how many it deleted."""


@capability("chat.cleanup-cache", queue=UPKEEP_QUEUE)
async def clean_up(ctx: Context, _value: None) -> int:
    """Delete old requests, and memories over a personality's limit; count them."""
    deleted = await _until_few(ctx, _old_requests(ctx))
    deleted += await _until_few(ctx, lambda tx: book.clean(tx, SOME))
    for tenant, personality in await ctx.read(limited):
        deleted += await _until_few(ctx, _trimming(tenant, personality))
    return deleted


@capability("chat.find-stuck-jobs", queue=UPKEEP_QUEUE)
async def find_stuck(ctx: Context, _value: None) -> int:
    """Report the jobs that have run for longer than they may; return how many."""
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
    """Repeat a transaction until it has nothing more to delete."""
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
        # No job is older than its request is kept, but for dead letters by hand.
        tx.connection.execute(forgotten.delete().where(f.at < now - 30 * 24 * HOUR))
        return deleted

    return delete
