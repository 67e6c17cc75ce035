"""
The Tasks service: a sentence in, a task out.

It holds tokens for its user, has the AI service work, and writes the task when it is
called back. The two share no table: all that goes between them goes over HTTP.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from backburner import App, Backburner, Need, Owner, Setup, Transaction
from backburner_apps.tasks import metrics
from backburner_apps.tasks.settings import TasksSettings


@asynccontextmanager
async def _serves(house: Backburner) -> AsyncIterator[Sequence[Any]]:
    # A worker has no use for what it brings.
    from backburner_apps.tasks.service import opened  # noqa: PLC0415

    async with opened(house) as routes:
        yield routes


def _needs(setup: Setup) -> Iterator[Need]:
    if "tasks" not in setup.served:
        return
    yield Need(("webhook_secret",), "to verify callbacks")
    if "ai" not in setup.served:
        yield Need(("service_base_url",), "to say where it is called back")
        yield Need(("ai_service_base_url",), "to call the AI service")
    if setup.is_keyed:
        yield Need(("api_key",), "to call the AI service")


def _reaches(settings: TasksSettings, address: str) -> Iterator[str]:
    yield settings.service_base_url or address


def _erase(tx: Transaction, owner: Owner, limit: int) -> int:
    from backburner_apps.tasks.book import erase  # noqa: PLC0415 - loads SQLAlchemy

    return erase(tx, owner, limit)


def _tables() -> Sequence[Any]:
    from backburner_apps.tasks.tables import metadata  # noqa: PLC0415 - loads SQLAlchemy

    return metadata.sorted_tables


app = App(
    "tasks",
    serves=_serves,
    needs=_needs,
    settings=TasksSettings,
    reaches=_reaches,
    migrations="backburner_apps.tasks.migrations",
    tables=_tables,
    erase=_erase,
    log_keys=["tasks_request_id"],
    metrics=[metrics.operations, metrics.seconds],
)
