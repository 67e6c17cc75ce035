"""A store that cannot be written is said so; nothing is promised or broken."""

import sqlite3
from contextlib import AsyncExitStack, suppress

import pytest

from backburner.domain.errors import StoreUnavailable
from backburner.stores.postgres import database
from backburner.stores.sqlite.database import driver

ON_A_FILE = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
BIG = {"capability": "demo.echo", "input": {"text": "x" * 50_000}}


async def set_pages(server, pages):
    """Let the file grow to so many pages, on the connection that writes."""

    def body(tx):
        connection = driver(tx.connection)
        used = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages or used}")

    await server.backburner.engine.store.transact(body)


async def submitted(server, count):
    """Return the answers to so many large submits."""
    return [await server.client.post("/v1/jobs", json=BIG) for _ in range(count)]


def check(server):
    """Return what SQLite says of the file, and how many jobs it has."""
    with sqlite3.connect(server.backburner.engine.store.database.path) as connection:
        (told,) = connection.execute("PRAGMA integrity_check").fetchone()
        (count,) = connection.execute("SELECT count(*) FROM jobs").fetchone()
    connection.close()
    return told, count


@ON_A_FILE
async def test_a_full_disk_is_said_nothing_breaks_and_it_recovers(serve):
    server = await serve(works=False)
    before = await submitted(server, 3)
    await set_pages(server, pages=0)
    during = await submitted(server, 5)
    listed = await server.client.get("/v1/jobs")
    full = check(server)
    await set_pages(server, pages=1_000_000)
    after = await submitted(server, 2)

    refused = [answer for answer in during if answer.status_code != 202]
    assert {507} == {answer.status_code for answer in refused}
    assert {"STORE_FULL"} == {answer.json()["code"] for answer in refused}
    assert {"30"} == {answer.headers["Retry-After"] for answer in refused}
    assert {True} == {answer.json()["retryable"] for answer in refused}
    assert [202] * 3 == [answer.status_code for answer in before]
    assert [202] * 2 == [answer.status_code for answer in after]
    kept = [answer for answer in before + during if answer.status_code == 202]
    assert len(kept) == len(listed.json()["items"])
    assert ("ok", len(kept)) == full
    assert ("ok", len(kept) + 2) == check(server)


@ON_A_FILE
async def test_a_store_that_cannot_be_written_is_said_and_nothing_is_promised(serve):
    server = await serve(works=False)
    await server.submit()

    def forbid(tx):
        driver(tx.connection).execute("PRAGMA query_only = ON")

    # Whoever else writes in the same transaction has it fail already.
    with suppress(StoreUnavailable):
        await server.backburner.engine.store.transact(forbid)
    response = await server.client.post("/v1/jobs", json=BIG)
    ready = await server.client.get("/readyz")
    alive = await server.client.get("/livez")
    listed = await server.client.get("/v1/jobs")

    assert (503, "STORE_UNAVAILABLE") == (response.status_code, response.json()["code"])
    assert "2" == response.headers["Retry-After"]
    assert 2 == response.json()["retry_after"]
    assert 503 == ready.status_code
    assert "application/problem+json" == ready.headers["Content-Type"]
    assert 200 == alive.status_code
    assert 1 == len(listed.json()["items"])


async def test_a_store_that_does_not_answer_is_not_ready(server, monkeypatch):
    async def ping():
        raise StoreUnavailable("secret path")

    monkeypatch.setattr(server.backburner.engine.store, "ping", ping)
    response = await server.client.get("/readyz")

    assert 503 == response.status_code
    assert "secret" not in response.text


async def test_a_fault_of_ours_is_answered_without_its_words(server, monkeypatch):
    async def find(*_args):
        raise RuntimeError("secret words")

    monkeypatch.setattr(server.backburner.engine, "find", find)
    response = await server.client.get("/v1/jobs/x")

    assert (500, "INTERNAL") == (response.status_code, response.json()["code"])
    assert "secret" not in response.text + server.log.getvalue()
    assert '"error_type": "RuntimeError"' in server.log.getvalue()


@pytest.mark.parametrize("path", ["/v1/queues", "/v1/workers", "/v1/dead-letters"])
async def test_a_store_that_cannot_be_read_is_said(server, path, monkeypatch):
    monkeypatch.setattr(server.backburner.engine.store, "_reader", None)
    response = await server.client.get(path)

    assert 503 == response.status_code


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_with_every_connection_lent_reads_are_refused_until_one_is_back(
    serve, monkeypatch
):
    monkeypatch.setattr(database, "CONNECT_SECONDS", 0.3)
    server = await serve(works=False)
    job = await server.submit()
    async with AsyncExitStack() as lent:
        for _ in range(database.POOL):
            connection = server.backburner.engine.store._database.connection()
            await lent.enter_async_context(connection)
        refused = await server.client.get(job["links"]["self"])
        accepted = await server.client.post("/v1/jobs", json=BIG)
    found = await server.client.get(job["links"]["self"])

    assert (503, "STORE_UNAVAILABLE") == (refused.status_code, refused.json()["code"])
    assert "2" == refused.headers["Retry-After"]
    assert (202, 200) == (accepted.status_code, found.status_code)


async def test_a_stored_job_that_cannot_be_read_is_still_accepted(server, monkeypatch):
    async def cannot(*_args, **_more):
        raise StoreUnavailable("the reader hiccups")

    asked = {"capability": "demo.echo", "input": {"text": "x"}}
    with monkeypatch.context() as patched:
        patched.setattr(server.backburner.engine, "wait", cannot)
        answer = await server.client.post(
            "/v1/jobs", json=asked, headers={"Prefer": "wait=5"}
        )
    job = await server.ended(answer.json())

    assert (202, "wait=5") == (
        answer.status_code,
        answer.headers["Preference-Applied"],
    )
    assert "succeeded" == job["state"]
