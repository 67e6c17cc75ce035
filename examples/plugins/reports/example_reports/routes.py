"""The routes of `reports`."""

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import uuid4

import sqlalchemy as sa
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from backburner import Backburner, Flow, Transaction, View
from backburner.web import Caller, Refusal, answer, read, require
from example_reports.work import Wanted, check, ended, reports, write

Writer = Annotated[Caller, require("jobs:write")]
Reader = Annotated[Caller, require("jobs:read")]


class NewReport(BaseModel):
    """A report as it is asked for."""

    title: str
    url: str = ""
    """A page to look at meanwhile."""


def routes(house: Backburner) -> Sequence[Any]:
    """Return the routes over an open `Backburner`."""
    router = APIRouter(tags=["reports"])

    @router.post("/reports")
    async def create(request: Request, caller: Writer) -> Response:
        """Store a report, a flow that looks at a page, and the job that writes it."""
        asked = await read(request, NewReport)
        owner, report = caller.owner, f"report_{uuid4().hex}"

        def store(tx: Transaction) -> None:
            row = {"id": report, "tenant": owner.tenant, "user": owner.user}
            tx.connection.execute(reports.insert(), {**row, "title": asked.title})
            flow = Flow()
            flow.add(check, asked.url)
            tx.submit_flow(flow, owner=owner)
            done = {"capability": ended, "input": {"report": report}}
            wanted = Wanted(id=report, title=asked.title)
            tx.submit(write, wanted, owner=owner, completion=done)

        await house.transact(store)
        return answer({"id": report})

    @router.get("/reports/{report_id}")
    async def fetch(report_id: str, caller: Reader) -> Response:
        """Stream a report that is written."""
        owner = caller.owner
        mine = reports.c.tenant == owner.tenant, reports.c.user == owner.user
        query = sa.select(reports.c.blob).where(*mine, reports.c.id == report_id)

        def look(view: View) -> str | None:
            found: str | None = view.connection.execute(query).scalar()
            return found

        blob = await house.read(look)
        if blob is None:
            raise Refusal(404, "NO_REPORT", "there is no such report, or not yet")
        return StreamingResponse(house.blobs("reports", owner).read(blob))

    return router.routes
