"""
Write to a store as fast as it goes: `flat_out.py FILE ROUNDS [--without-lock]`.

Waits for a line on standard input once it is ready, and says when half is done.
Prints what went wrong; the last line is how many jobs it settled.
"""

import asyncio
import sys
from collections import Counter
from pathlib import Path

from backburner.clock import SystemClock, SystemDice
from backburner.domain.errors import StoreUnavailable
from backburner.domain.jobs.job import JobState, NewJob, Owner
from backburner.domain.jobs.transitions import Change
from backburner.ports.store.jobs import ClaimRequest, Settlement
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.sqlite import database
from backburner.stores.sqlite.database import Database, WriteLock
from backburner.stores.sqlite.store import SqliteStore

CLOCK, DICE = SystemClock(), SystemDice()
OWNER = Owner("acme", "ann")


def take_the_lock_away():
    WriteLock.__enter__ = lambda _: None
    WriteLock.__exit__ = lambda *_: None
    database.BUSY_TIMEOUT_MS = 0


def a_job():
    now = CLOCK.now()
    job_id = f"job_{DICE.uuid(now)}"
    return NewJob(job_id, OWNER, "greet", "default", "{}", now, 3)


async def go_round(store, worker):
    await asyncio.gather(*(store.submit([a_job()]) for _ in range(4)))
    claims = await store.claim(
        worker, DICE.token(), [ClaimRequest("default", 4)], now=CLOCK.now()
    )
    done = Change(JobState.SUCCEEDED, "job.succeeded", CLOCK.now(), output="1")
    settled = await store.settle([Settlement(c.seq, c.token, done) for c in claims])
    return len([change for change in settled if change])


async def write(path, rounds):
    store = SqliteStore(Database(path), CLOCK)
    worker = DICE.token()
    faults = Counter()
    settled = 0
    await asyncio.to_thread(sys.stdin.readline)
    await store.open()
    try:
        await store.enlist(WorkerInfo(worker, "here", 1, 1, ("default",), 0))
        for number in range(rounds):
            if number == rounds // 2:
                print("half", flush=True)
            try:
                settled += await go_round(store, worker)
            except StoreUnavailable as error:
                faults[str(error)] += 1
    finally:
        await store.close()
    for fault in faults:
        print(fault)
    print(settled)


if __name__ == "__main__":
    if "--without-lock" in sys.argv:
        take_the_lock_away()
    print("ready", flush=True)
    asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2])))
