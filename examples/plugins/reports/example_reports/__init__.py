"""Reports that are written in the background and kept as blobs."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from backburner import App, Backburner, Schedule, Translation, erase_rows
from example_reports.work import check, ended, reports, tell, write


@asynccontextmanager
async def serves(house: Backburner) -> AsyncIterator[Sequence[Any]]:
    """Give the routes for as long as they are served."""
    from example_reports.routes import routes  # noqa: PLC0415 - a worker needs none

    yield routes(house)


app = App(
    "reports",
    capabilities=[write, ended, check],
    schedules=[Schedule("reports.nightly", "0 3 * * *", check, "")],
    serves=serves,
    translates=Translation(["job.started"], tell),
    migrations="example_reports.migrations",
    tables=lambda: [reports],
    erase=lambda tx, owner, limit: erase_rows(tx, reports, owner, limit),
)
