"""What `reports` does in the background: a flow of two steps, and its completion."""

import sqlalchemy as sa
from pydantic import BaseModel

from backburner import Context, EngineEvent, JobEnd, Transaction, capability

reports = sa.Table(
    "reports_reports",
    sa.MetaData(),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("blob", sa.Text),
    sa.Column("state", sa.Text),
)


class Wanted(BaseModel):
    """A report that is to be written."""

    id: str
    title: str


class Ended(BaseModel):
    """A report whose job has ended, however it did."""

    report: str
    job: JobEnd


@capability("reports.write", queue="reports")
async def write(ctx: Context, wanted: Wanted) -> str:
    """Write a report as a blob of the application; its row names it."""
    lines = (f"{wanted.title}, line {n}\n".encode() for n in range(3))
    blob = await ctx.app_blobs.write(
        lines, name="report.txt", content_type="text/plain"
    )

    def store(tx: Transaction) -> None:
        change = reports.update().where(reports.c.id == wanted.id)
        tx.connection.execute(change.values(blob=blob.id))

    ctx.at_settlement(store)
    return blob.id


@capability("reports.ended", queue="reports")
async def ended(ctx: Context, value: Ended) -> None:
    """Store how a report's job ended, and tell its owner."""

    def store(tx: Transaction) -> None:
        change = reports.update().where(reports.c.id == value.report)
        tx.connection.execute(change.values(state=str(value.job.state)))
        told = {"id": value.report, "state": str(value.job.state)}
        tx.publish("reports", "report:ended", told, to=ctx.job.owner)

    await ctx.transact(store)


@capability("reports.check", queue="reports")
async def check(ctx: Context, url: str) -> int:
    """Say what a page answers, if one is named; also run by a schedule."""
    if not url:
        return 0
    return (await ctx.http.get(url, limit=100_000, seconds=20)).status


def tell(tx: Transaction, told: EngineEvent) -> None:
    """Tell the owner of a report that its job has started."""
    if told.capability == write.name and told.owner is not None:
        tx.publish("reports", "report:started", {"job": told.job_id}, to=told.owner)
