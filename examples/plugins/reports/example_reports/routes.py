"""The routes of `reports`."""

from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any
from uuid import uuid4

import sqlalchemy as sa
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from backburner import Backburner, Flow, Owner, Transaction, View
from backburner.web import (
    Caller,
    Refusal,
    ServerEvent,
    ServerEvents,
    StreamReader,
    answer,
    read,
    require,
    wait,
)
from example_reports.work import NewKey, check, ended, reports, write

Writer = Annotated[Caller, require("jobs:write")]
Reader = Annotated[Caller, require("jobs:read")]


class NewReport(BaseModel):
    """A request for a report."""

    title: str
    url: str = ""
    """A web page to fetch in another step."""
    notify: str = ""
    """A URL that is called when the report is written."""
    wait: int = Field(0, ge=0, le=60)
    """How many seconds to wait for it."""


def routes(backburner: Backburner) -> Sequence[Any]:
    """Return the routes over an open `Backburner`."""
    router = APIRouter(tags=["reports"])

    @router.post("/reports")
    async def create(request: Request, caller: Writer) -> Response:
        """Store a report, a flow that fetches a page, and the job that writes it."""
        asked = await read(request, NewReport)
        owner, report = caller.owner, f"report_{uuid4().hex}"

        def store(tx: Transaction) -> str:
            row = {"id": report, "tenant": owner.tenant, "user": owner.user}
            tx.connection.execute(reports.insert(), {**row, "title": asked.title})
            flow = Flow()
            flow.add(check, asked.url)
            tx.submit_flow(flow, owner=owner)
            end = {"report": report, "notify": asked.notify}
            done = {"capability": ended, "input": end}
            wanted = NewKey(id=report, title=asked.title)
            return tx.submit(write, wanted, owner=owner, completion=done).id

        job_id = await backburner.transact(store)
        job = await wait(request, caller, job_id, seconds=asked.wait)
        return answer({"id": report, "job": job_id, "state": str(job.state)}, 201)

    @router.get("/reports/{report_id}")
    async def fetch(report_id: str, caller: Reader) -> Response:
        """Stream a finished report."""
        return StreamingResponse(await content(caller.owner, report_id))

    @router.get("/reports/{report_id}/lines")
    async def follow(report_id: str, reader: StreamReader) -> Response:
        """Stream a report line by line; also accepts a token for `reports`."""
        owner = reader.following("topic", "reports").owner
        return ServerEvents(lines(await content(owner, report_id)))

    async def content(owner: Owner, report_id: str) -> AsyncGenerator[bytes, None]:
        mine = reports.c.tenant == owner.tenant, reports.c.user == owner.user
        query = sa.select(reports.c.blob).where(*mine, reports.c.id == report_id)

        def look(view: View) -> str | None:
            found: str | None = view.connection.execute(query).scalar()
            return found

        blob = await backburner.read(look)
        if blob is None:
            raise Refusal(404, "NO_REPORT", "there is no such report, or not yet")
        return backburner.blobs("reports", owner).read(blob)

    return router.routes


async def lines(
    pieces: AsyncGenerator[bytes, None],
) -> AsyncGenerator[ServerEvent, None]:
    """Yield an event for each line of a report, which is short."""
    text = b"".join([piece async for piece in pieces]).decode()
    for number, line in enumerate(text.splitlines(), 1):
        yield ServerEvent({"text": line}, "line", number)
    yield ServerEvent({}, "end")
