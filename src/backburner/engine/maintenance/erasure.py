"""Deletes all data of a user, in the engine and in applications."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from backburner.domain.errors import CallerError, IllegalTransition
from backburner.domain.jobs.job import Owner
from backburner.engine.engine import Engine
from backburner.engine.transaction import Transaction
from backburner.ports.faults import Faults
from backburner.ports.store.keys import AuditEntry

EraseRows = Callable[[Transaction, Owner, int], int]
"""
Deletes up to `limit` rows of a user in a transaction and returns how many.

It is called until it returns 0, and again from the start after a crash.
"""

LIMIT: Final = 200
"""How many jobs, flows or rows one transaction deletes."""
PASSES: Final = 3
"""How often to delete everything, if jobs have been submitted meanwhile."""
MANY: Final = 500
"""How many jobs, flows and batches are cancelled before looking again."""
PAUSE_SECONDS: Final = 0.2
"""How long to wait for cancelled batches to end before looking again …"""
MOST_PAUSES: Final = 300
"""… and how often."""
ACTION: Final = "users.erase"


class StillWorking(CallerError):
    """The user has jobs, flows or batches that are not finished."""

    code = "USER_HAS_WORK"


class Eraser:
    """Deletes the data of one user. An interrupted run is completed by the next one."""

    def __init__(
        self, engine: Engine, apps: Mapping[str, EraseRows], faults: Faults
    ) -> None:
        """Create an eraser; `apps` erases the rows of each application, by its name."""
        self._engine = engine
        self._store = engine.store
        self._apps = apps
        self._faults = faults

    async def run(
        self, owner: Owner, alias: str, *, actor: str, cancel: bool = False
    ) -> Mapping[str, int]:
        """
        Delete a user's data and return the number of deleted rows, by kind.

        Raises `StillWorking` and changes nothing while the user has unfinished work,
        unless `cancel` ends it first. Also raises it if jobs are submitted for the user
        all the time; those that had ended by then are deleted. `alias` replaces the
        name in the ledger. The audit log gets a digest of the name, not the name.
        """
        if not cancel:
            await self._check_idle(owner)
        entry = AuditEntry(
            self._engine.now(), owner.tenant, actor, ACTION, digest(owner)
        )
        await self._store.record([entry])
        if cancel:
            await self._cancel(owner)
        counts: Counter[str] = Counter()
        for _ in range(PASSES):
            counts.update(await self._erase(owner, alias))
            await self._check_idle(owner)
            if not any(await self._store.erasable(owner, limit=1)):
                return dict(counts)
            # A job was submitted after the keys were deleted or `_cancel` looked, and
            # has ended: neither it nor what it wrote to an application was deleted.
        raise StillWorking(
            "new jobs are being submitted for the user during the erasure: stop the "
            "schedule or the service that submits them, then run this command again"
        )

    async def _erase(self, owner: Owner, alias: str) -> Mapping[str, int]:
        # Keys first: the user must not submit while they are being erased.
        counts = {"records": await self._repeat(partial(self._records, owner))}
        counts["jobs"] = await self._jobs(owner)
        for name, erase in self._apps.items():
            counts[name] = await self._repeat(partial(self._rows, erase, owner))
        # Batches whose last members were just deleted, and rows created meanwhile.
        counts["records"] += await self._repeat(partial(self._records, owner))
        counts["renamed"] = await self._repeat(partial(self._rename, owner, alias))
        return counts

    async def _check_idle(self, owner: Owner) -> None:
        found = await self._store.unfinished(owner, limit=LIMIT)
        if found:
            count = f"{LIMIT} or more" if len(found) == LIMIT else str(len(found))
            raise StillWorking(
                f"the user has {count} unfinished jobs, flows or batches, such as "
                f"{found[0]}: wait until they end, or use --cancel"
            )

    async def _cancel(self, owner: Owner) -> None:
        """
        Cancel all unfinished work; other processes may end some of it meanwhile.

        Raises `StillWorking` if there is no end to it, because work is submitted all
        the time or a batch does not end.
        """
        seen: set[str] = set()
        pauses = 0
        while found := await self._store.unfinished(owner, limit=MANY):
            if pauses == MOST_PAUSES:
                raise StillWorking(
                    f"the user still has unfinished work, such as {found[0]}, after "
                    "all of it was cancelled: stop the schedule or the service that "
                    "submits it, then run this command again"
                )
            await self._cancel_all(found, owner)
            is_backlog = len(seen.union(found)) == len(seen) + MANY
            seen.update(found)
            if not is_backlog:
                pauses += 1
                # A batch ends shortly after its last member, without a notification.
                await asyncio.sleep(PAUSE_SECONDS)  # noqa: TID251 - see above

    async def _cancel_all(self, found: Sequence[str], owner: Owner) -> None:
        jobs: list[str] = []
        for one in found:
            with suppress(IllegalTransition):  # it has just ended
                if one.startswith("flow_"):
                    await self._engine.flows.cancel(one, owner)
                elif one.startswith("batch_"):
                    await self._engine.batches.cancel(one, owner)
                else:
                    jobs.append(one)
        await self._engine.cancel_jobs(await self._store.find(jobs))

    async def _repeat(self, step: Callable[[], Awaitable[int]]) -> int:
        total = 0
        while count := await step():
            total += count
        return total

    async def _records(self, owner: Owner) -> int:
        count = await self._store.erase_records(owner, limit=LIMIT)
        self._faults.hit("erase.records")
        return count

    async def _jobs(self, owner: Owner) -> int:
        total = 0
        while any(which := await self._store.erasable(owner, limit=LIMIT)):
            # Contents first: a run that ends here finds their rows again.
            await self._engine.payloads.drop(which.ids)
            self._faults.hit("erase.contents")
            total += await self._store.erase(owner, which)
            self._faults.hit("erase.jobs")
        return total

    async def _rows(self, erase: EraseRows, owner: Owner) -> int:
        count = await self._engine.transact(lambda tx: erase(tx, owner, LIMIT))
        self._faults.hit("erase.rows")
        return count

    async def _rename(self, owner: Owner, alias: str) -> int:
        count = await self._store.anonymise(owner, alias, limit=LIMIT)
        self._faults.hit("erase.renamed")
        return count


def erase_rows(
    tx: Transaction,
    table: Any,
    owner: Owner,
    limit: int,
    *,
    parts: Sequence[Any] = (),
) -> int:
    """
    Delete up to `limit` rows of a user from a table with columns `tenant` and `user`.

    Return how many there were, as `App(erase=…)` must. `parts` are columns of other
    tables that hold the primary key of this one, which is one column then: the rows
    that refer to a deleted row are deleted with it.
    """
    from sqlalchemy import tuple_  # noqa: PLC0415 - only who has tables needs it

    key = list(table.primary_key)
    mine = table.c.tenant == owner.tenant, table.c.user == owner.user
    some = table.select().with_only_columns(*key).where(*mine).limit(limit)
    found = [tuple(row) for row in tx.connection.execute(some)]
    for column in parts if found else ():
        belong = column.in_([key for (key,) in found])
        tx.connection.execute(column.table.delete().where(belong))
    if found:
        tx.connection.execute(table.delete().where(tuple_(*key).in_(found)))
    return len(found)


def digest(owner: Owner) -> str:
    """Return the digest that the audit log shows for an erased user."""
    name = f"{owner.tenant}/{owner.user}".encode()
    return f"sha256:{hashlib.sha256(name).hexdigest()}"
