"""Warns a program that waits for a job whose queue no worker serves."""

import asyncio
from typing import Final

from backburner.domain.errors import StoreUnavailable
from backburner.ports.log import log
from backburner.ports.store import Store

UNSERVED_SECONDS: Final = 5.0
"""How long a job may be waited for before its queue's workers are looked up."""
CHECK_EVERY_SECONDS: Final = 60.0


class UnservedQueues:
    """Looks up a queue's workers once a minute, however many jobs are waited for."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    async def check(self, store: Store, queue: str) -> None:
        """Log a warning if no worker is registered for the queue."""
        now = asyncio.get_running_loop().time()
        if now < self._next.get(queue, now):
            return
        self._next[queue] = now + CHECK_EVERY_SECONDS
        try:
            workers = await store.workers()
        except StoreUnavailable:
            return
        if not any(queue in worker.queues for worker in workers):
            log.warning(
                f"no worker takes jobs of the queue {queue!r}: "
                "call `await bb.start_worker()` or run `backburner worker`",
                queue=queue,
            )
