"""The deletion of a user's data while the user still submits."""

import pytest

from backburner import Context, Owner, capability
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
