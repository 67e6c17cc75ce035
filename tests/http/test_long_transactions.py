"""A route of an application whose transaction runs without end."""

import asyncio
from typing import Annotated

import pytest
import sqlalchemy as sa
from fastapi import APIRouter

from backburner import Transaction, web
from backburner.testing.store.transactions import ENDLESS

pytestmark = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
Writer = Annotated[web.Caller, web.require("jobs:write")]


@pytest.fixture
async def server(serve):
    """A server with a route that publishes, and then does not end."""
    router = APIRouter()

    @router.post("/app/endless")
    async def endless(caller: Writer):
        def body(tx: Transaction) -> None:
            tx.publish("notes", "note:made", {}, to=caller.owner)
            tx.submit("demo.echo", {}, owner=caller.owner)
            tx.connection.execute(ENDLESS)

        await server.backburner.transact(body)

    server = await serve(app_routes=router.routes, limits={"transaction_seconds": 0.5})
    return server


async def test_it_is_a_503_keeps_nothing_and_harms_nobody(server):
    endless, job = await asyncio.gather(
        server.client.post("/app/endless"), server.submit()
    )
    ended = await server.ended(job)
    jobs = (await server.client.get("/v1/jobs")).json()["items"]
    published = sa.text("SELECT count(*) FROM events WHERE topic = 'notes'")
    count = await server.backburner.read(lambda view: view.connection.scalar(published))

    assert (503, "TRANSACTION_TOO_LONG") == (
        endless.status_code,
        endless.json()["code"],
    )
    assert ("succeeded", [job["id"]]) == (ended["state"], [j["id"] for j in jobs])
    assert 0 == count
