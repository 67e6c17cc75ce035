"""Reports that are written in the background and kept as blobs."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from backburner import (
    App,
    Backburner,
    Keep,
    ModelUse,
    Queue,
    Schedule,
    Translation,
    erase_rows,
)
from example_reports.work import check, corrected, ended, publish_start, reports, write

# Deleted after a day, or when there are 1,000 newer ones; failed ones after a month.
keep = Keep(
    succeeded=timedelta(days=1), succeeded_count=1_000, failed=timedelta(days=30)
)


@asynccontextmanager
async def serves(backburner: Backburner) -> AsyncIterator[Sequence[Any]]:
    """Yield the routes while they are served."""
    from example_reports import files, routes  # noqa: PLC0415 - a worker needs none

    yield [*files.routes(backburner), *routes.routes(backburner)]


app = App(
    "reports",
    capabilities=[write, ended, check],
    queues=[Queue("reports", keep=keep)],
    schedules=[Schedule("reports.nightly", "0 3 * * *", check, "")],
    models=[ModelUse("chat")],
    serves=serves,
    translates=Translation(["job.started"], publish_start),
    migrations="example_reports.migrations",
    tables=lambda: [reports],
    erase=lambda tx, owner, limit: erase_rows(tx, reports, owner, limit),
    metrics=[corrected],
)
