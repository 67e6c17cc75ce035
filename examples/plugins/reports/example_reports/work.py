"""What `reports` does in the background: a job, its completion, and a step."""

from urllib.parse import urlsplit

import sqlalchemy as sa
from pydantic import BaseModel

from backburner import (
    Context,
    Correction,
    Counter,
    EngineEvent,
    JobEnd,
    Transaction,
    capability,
)

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
corrected = Counter("reports_corrected_total", "Answers corrected, by why.", ["code"])


class NewKey(BaseModel):
    """A report that is to be written."""

    id: str
    title: str


class Text(BaseModel):
    """What the model is asked for."""

    summary: str


class Ended(BaseModel):
    """A report whose job has ended, however it did."""

    report: str
    notify: str = ""
    """The URL that is told, if any."""
    job: JobEnd


@capability("reports.write", queue="reports")
async def write(ctx: Context, wanted: NewKey) -> str:
    """Write a report as a blob of the application; its row names it."""
    prompt = f"Summarise in one sentence: {wanted.title}"
    text = await ctx.ask(prompt, into=Text, on_correction=observe)
    lines = (f"{line}\n".encode() for line in (wanted.title, text.summary))
    blob = await ctx.app_blobs.write(
        lines, name="report.txt", content_type="text/plain"
    )

    def store(tx: Transaction) -> None:
        change = reports.update().where(reports.c.id == wanted.id)
        tx.connection.execute(change.values(blob=blob.id))

    ctx.at_settlement(store)
    return blob.id


def observe(correction: Correction) -> None:
    """Count an answer that cannot be used, before the model is asked again."""
    corrected.labels(correction.code).inc()


@capability("reports.ended", queue="reports")
async def ended(ctx: Context, value: Ended) -> None:
    """Store how a report's job ended, and tell its owner and a server."""
    told = {"id": value.report, "state": str(value.job.state)}

    def store(tx: Transaction) -> None:
        change = reports.update().where(reports.c.id == value.report)
        tx.connection.execute(change.values(state=told["state"]))
        tx.publish("reports", "report:ended", told, to=ctx.job.owner)

    await ctx.transact(store)
    if value.notify:
        (await ctx.http.post(value.notify, json=told, seconds=20)).raise_for_status()


@capability("reports.check", queue="reports")
async def check(ctx: Context, url: str) -> int:
    """Say how long a page is, if one is named; also run by a schedule."""
    if not url:
        return 0
    own = [urlsplit(url).netloc]  # redirects to other hosts are refused
    page = await ctx.http.get(url, hosts=own, limit=100_000, seconds=20)
    page.raise_for_status()
    return len(page.body)


def tell(tx: Transaction, told: EngineEvent) -> None:
    """Tell the owner of a report that its job has started."""
    if told.capability == write.name and told.owner is not None:
        tx.publish("reports", "report:started", {"job": told.job_id}, to=told.owner)
