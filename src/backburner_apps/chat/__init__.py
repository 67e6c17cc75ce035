"""
Replies with preprocessing, for chat platforms and over HTTP.

A request becomes a flow: a job for each recording and each picture, and one that
writes the reply when those have ended, whatever they came to.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from backburner import App, Backburner, Keep, ModelUse, Queue
from backburner_apps.chat import tables
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.chat.work import QUEUE, describe, generate, transcribe

PER_WORKER = 5


@asynccontextmanager
async def _serves(house: Backburner) -> AsyncIterator[Sequence[Any]]:
    # A worker has no use for what it brings.
    from backburner_apps.chat.routes import routes  # noqa: PLC0415

    yield routes(house)


app = App(
    "chat",
    own=[transcribe, describe, generate],
    queues=[
        Queue(
            QUEUE,
            per_worker=PER_WORKER,
            keep=Keep(
                succeeded=timedelta(hours=24),
                succeeded_count=10,
                failed=timedelta(days=7),
            ),
        )
    ],
    serves=_serves,
    models=[
        ModelUse("chat"),
        ModelUse("embedding", is_required=False),
        ModelUse("transcription", is_required=False),
        ModelUse("vision", is_required=False),
    ],
    settings=ChatSettings,
    migrations="backburner_apps.chat.migrations",
    tables=lambda: tables.metadata.sorted_tables,
    erase=tables.erase,
    log_keys=["requestId", "jobId", "durationMs", "attempt", "maxAttempts", "delayMs"],
)
