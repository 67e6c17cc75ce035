"""The deletion of a user's data while the user still submits."""

from datetime import timedelta

import pytest

from backburner import Context, Owner, capability
from backburner.engine.maintenance import erasure
from backburner.engine.maintenance.erasure import Eraser, StillWorking
from backburner.ports.faults import NoFaults
from backburner.stores.tables import app_blobs

ANN = Owner("default", "ann")


async def test_a_job_that_ends_while_its_user_is_erased_is_deleted(
    running, monkeypatch
):
    """It begins and ends after the user's jobs and rows were deleted."""

    @capability("note")
    async def note(_ctx: Context, text: str) -> str:
        return text

    bb = await running(note)
    store, late = bb.engine.store, []
    anonymise = store.anonymise

    async def submit(*args, **options):
        if not late:
            late.append(await bb.submit(note, "private", owner=ANN))
            await late[0].result()
            await bb.blobs("notes", ANN).write(b"private")
        return await anonymise(*args, **options)

    monkeypatch.setattr(store, "anonymise", submit)
    rows = []
    erase = {"notes": lambda _tx, _owner, _limit: rows.append(len(late)) or 0}
    early = await bb.submit(note, "private", owner=ANN)
    await early.result()
    counts = await Eraser(bb.engine, erase, NoFaults()).run(
        ANN, "erased_1", actor="tests", cancel=True
    )
    blobs = await bb.read(
        lambda view: view.connection.execute(app_blobs.select()).all()
    )

    assert [] == list(await store.find([early.id, late[0].id]))
    assert [] == blobs
    assert [0, 1] == rows, "the application's rows are deleted again"
    assert {"records", "jobs", "notes", "renamed"} == {*counts}
    assert 3 <= counts["jobs"]


async def test_a_user_for_whom_jobs_are_submitted_all_the_time_is_refused(
    running, monkeypatch
):
    """*Before: it went on for as long as they were.*"""

    @capability("note")
    async def note(_ctx: Context, text: str) -> str:
        return text

    bb = await running(note)
    store, late = bb.engine.store, []
    anonymise = store.anonymise

    async def submit(*args, **options):
        if len(late) < 20:
            late.append(await bb.submit(note, "private", owner=ANN))
            await late[-1].result()
        return await anonymise(*args, **options)

    monkeypatch.setattr(store, "anonymise", submit)
    eraser = Eraser(bb.engine, {}, NoFaults())
    with pytest.raises(StillWorking, match="new jobs are being submitted"):
        await eraser.run(ANN, "erased_1", actor="tests", cancel=True)
    monkeypatch.undo()
    counts = await eraser.run(ANN, "erased_1", actor="tests")

    assert len(late) < 20
    assert [] == list(await store.find([ticket.id for ticket in late]))
    assert 1 <= counts["jobs"]


async def test_waiting_jobs_are_cancelled_many_at_a_time(running, monkeypatch):
    """*Before: one by one, with a pause after every 200.*"""

    @capability("note")
    async def note(_ctx: Context, text: str) -> str:
        return text

    bb = await running(note)
    monkeypatch.setattr(erasure, "MANY", 10)
    later = {"delay": timedelta(days=1), "owner": ANN}
    tickets = await bb.submit_many(note, ["private"] * 25, **later)
    looks, alone = [], []
    unfinished, cancel = bb.engine.store.unfinished, bb.engine.cancel

    async def look(owner, *, limit):
        looks.append(limit)
        return await unfinished(owner, limit=limit)

    async def cancel_one(*args, **options):
        alone.append(args)
        return await cancel(*args, **options)

    monkeypatch.setattr(bb.engine.store, "unfinished", look)
    monkeypatch.setattr(bb.engine, "cancel", cancel_one)
    eraser = Eraser(bb.engine, {}, NoFaults())
    await eraser.run(ANN, "erased_1", actor="tests", cancel=True)

    assert [] == list(await bb.engine.store.find([ticket.id for ticket in tickets]))
    assert [10, 10, 10, 10] == looks[:4], "three pages, and one that is empty"
    assert [] == alone


async def test_work_that_does_not_end_is_not_waited_for_without_end(
    running, monkeypatch
):
    """*Before: the erasure went on for as long as jobs were submitted.*"""

    @capability("note")
    async def note(_ctx: Context, text: str) -> str:
        return text

    bb = await running(note)
    monkeypatch.setattr(erasure, "MOST_PAUSES", 3)
    monkeypatch.setattr(erasure, "PAUSE_SECONDS", 0)
    later = {"delay": timedelta(days=1), "owner": ANN}
    unfinished, submitted = bb.engine.store.unfinished, []

    async def look(owner, *, limit):
        if len(submitted) < 20:
            submitted.append(await bb.submit(note, "private", **later))
        return await unfinished(owner, limit=limit)

    monkeypatch.setattr(bb.engine.store, "unfinished", look)
    eraser = Eraser(bb.engine, {}, NoFaults())
    with pytest.raises(StillWorking, match="after all of it was cancelled"):
        await eraser.run(ANN, "erased_1", actor="tests", cancel=True)

    assert 4 == len(submitted)
