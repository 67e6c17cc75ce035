"""A job's events without progress and text, read page by page."""

from collections.abc import AsyncIterator
from typing import Final

from backburner.domain.events.event import Event
from backburner.ports.store.events import EventLog

PAGE: Final = 5_000


async def changes(events: EventLog, job_id: str) -> AsyncIterator[Event]:
    """Yield a job's events without progress and text, oldest first."""
    after = 0
    while page := await events.changes(job_id, after=after, limit=PAGE):
        for event in page:
            yield event
        if len(page) < PAGE:
            return
        after = page[-1].n
