"""The jobs of `reports`: a job, its completion, and a step."""

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
    """A report to write."""

    id: str
    title: str


class Text(BaseModel):
    """The answer of the model."""

    summary: str


class Ended(BaseModel):
    """A report whose job has ended, successfully or not."""

    report: str
    notify: str = ""
    """The URL to call, if any."""
    job: JobEnd


@capability("reports.write", queue="reports")
async def write(ctx: Context, wanted: NewKey) -> str:
    """Write a report as a blob of the application, to which its row refers."""
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
    """Count an unusable answer, before the model is called again."""
    corrected.labels(correction.code).inc()


@capability("reports.ended", queue="reports")
async def ended(ctx: Context, value: Ended) -> None:
    """Store how a report's job ended, and notify its owner and a server."""
    report = {"id": value.report, "state": str(value.job.state)}

    def store(tx: Transaction) -> None:
        change = reports.update().where(reports.c.id == value.report)
        tx.connection.execute(change.values(state=report["state"]))
        tx.publish("reports", "report:ended", report, to=ctx.job.owner)

    await ctx.transact(store)
    if value.notify:
        (await ctx.http.post(value.notify, json=report, seconds=20)).raise_for_status()


@capability("reports.check", queue="reports")
async def check(ctx: Context, url: str) -> int:
    """Return the length of a page, if one is given; also run by a schedule."""
    if not url:
        return 0
    own = [urlsplit(url).netloc]  # redirects to other hosts are refused
    page = await ctx.http.get(url, hosts=own, limit=100_000, seconds=20)
    page.raise_for_status()
    return len(page.body)


def publish_start(tx: Transaction, engine_event: EngineEvent) -> None:
    """Notify the owner of a report that its job has started."""
    owner = engine_event.owner
    if engine_event.capability == write.name and owner is not None:
        tx.publish("reports", "report:started", {"job": engine_event.job_id}, to=owner)
