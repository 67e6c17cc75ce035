"""
The inbox: a message to a Telegram bot becomes tasks.

Telegram's webhook → queue `task-parsing` → a model → tasks, record and notification in
one transaction → queue `notifications` → Telegram. See docs/inbox.md.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from backburner import (
    App,
    Backburner,
    ModelUse,
    Need,
    Owner,
    Setup,
    Transaction,
)
from backburner_apps.inbox import metrics, notifying, work
from backburner_apps.inbox.cli import commands
from backburner_apps.inbox.parsing import NO_AUDIO
from backburner_apps.inbox.settings import InboxSettings


@asynccontextmanager
async def _serves(house: Backburner) -> AsyncIterator[Sequence[Any]]:
    # A worker has no use for what it brings.
    from backburner_apps.inbox.routes import routes  # noqa: PLC0415

    yield routes(house)


def _needs(setup: Setup) -> Iterator[Need]:
    if setup.is_dev:
        return
    if "inbox" in setup.served:
        why = "to know that updates come from Telegram"
        yield Need(("telegram_webhook_secret",), why)
    if setup.works:
        yield Need(("telegram_bot_token",), "to answer in Telegram")


def _erase(tx: Transaction, owner: Owner, limit: int) -> int:
    from backburner_apps.inbox.book import erase  # noqa: PLC0415 - loads SQLAlchemy

    return erase(tx, owner, limit)


def _tables() -> Sequence[Any]:
    from backburner_apps.inbox.tables import metadata  # noqa: PLC0415 - as above

    return metadata.sorted_tables


app = App(
    "inbox",
    own=[work.parse_message, work.message_ended, notifying.notify],
    serves=_serves,
    models=[
        ModelUse("chat"),
        ModelUse("transcription", is_required=False, code=NO_AUDIO),
    ],
    needs=_needs,
    settings=InboxSettings,
    migrations="backburner_apps.inbox.migrations",
    tables=_tables,
    erase=_erase,
    commands=commands,
    pages=files("backburner_apps.inbox") / "pages",
    log_keys=[
        "correlationId",
        "errorCode",
        "promptLength",
        "reasonCode",
        "responseLength",
        "source",
        "taskCount",
    ],
    metrics=metrics.EVERY,
)
