"""
The Tasks service: a sentence in, a task out.

It holds tokens for its user, has the AI service work, and writes the task when it is
called back. The two share no table: all that goes between them goes over HTTP.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from backburner import App, Backburner


@asynccontextmanager
async def _serves(house: Backburner) -> AsyncIterator[Sequence[Any]]:
    # A worker has no use for what it brings.
    from backburner_apps.tasks.service import opened  # noqa: PLC0415

    async with opened(house) as routes:
        yield routes


app = App("tasks", serves=_serves)
