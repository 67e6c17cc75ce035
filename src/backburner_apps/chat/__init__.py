"""
Replies with preprocessing, for chat platforms and over HTTP.

A request becomes a flow: a job for each recording and each image, and a job that
writes the reply when those have ended, successfully or not.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from backburner import (
    App,
    Backburner,
    Keep,
    Lane,
    ModelUse,
    Owner,
    Queue,
    Transaction,
    Translation,
)
from backburner_apps.chat import sample, tables
from backburner_apps.chat.discord import application
from backburner_apps.chat.discord import tables as discord_tables
from backburner_apps.chat.discord.cli import commands
from backburner_apps.chat.log_lines import LOGGED, write
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.chat.upkeep import SCHEDULES, UPKEEP_QUEUE, clean_up, find_stuck
from backburner_apps.chat.work import QUEUE, describe, embed, generate, transcribe

PER_WORKER = 5
MINUTE_MS = 60_000
UNLIMITED = 1_000_000


@asynccontextmanager
async def _serves(backburner: Backburner) -> AsyncIterator[Sequence[Any]]:
    # Imported here, because a worker does not need the routes.
    from backburner_apps.chat.routes import routes  # noqa: PLC0415

    yield [*routes(backburner), *application.routes(backburner)]


def _erase(tx: Transaction, owner: Owner, limit: int) -> int:
    return tables.erase(tx, owner, limit) or discord_tables.erase(tx, owner, limit)


def _model_lane(settings: ChatSettings) -> Lane:
    """Return the lane that limits the model calls of all workers together."""
    spacing = settings.provider_spacing_ms
    return Lane(
        "chat/models",
        # Start at the full rate: the spacing is known, so nothing has to be learnt.
        requests=MINUTE_MS // spacing if spacing else UNLIMITED,
        at_once=settings.provider_at_once,
        spacing=timedelta(milliseconds=spacing),
    )


app = App(
    "chat",
    own=[
        *(transcribe, describe, generate, embed, clean_up, find_stuck),
        *application.OWN,
    ],
    queues=[
        Queue(
            QUEUE,
            per_worker=PER_WORKER,
            keep=Keep(
                succeeded=timedelta(hours=24),
                succeeded_count=10,
                failed=timedelta(days=7),
            ),
        ),
        Queue(UPKEEP_QUEUE, keep=Keep(succeeded=timedelta(hours=1))),
        *application.QUEUES,
    ],
    schedules=SCHEDULES,
    model_lane=_model_lane,
    counted_queue=QUEUE,
    translates=Translation(LOGGED, write),
    samples=sample.make,
    serves=_serves,
    models=[
        ModelUse("chat"),
        ModelUse("embedding", is_required=False, fallback="mock"),
        ModelUse("transcription", is_required=False),
        ModelUse("vision", is_required=False),
    ],
    settings=ChatSettings,
    migrations="backburner_apps.chat.migrations",
    tables=lambda: tables.metadata.sorted_tables,
    erase=_erase,
    commands=commands,
    log_keys=["requestId", "jobId", "durationMs", "attempt", "maxAttempts", "delayMs"],
)
