"""History that is written by SQL is what the engine would have left behind."""

import asyncio

import pytest

from backburner import Backburner, Settings
from backburner.domain.jobs.job import JobState, Owner
from backburner.ports.store.maintenance import JobFilter
from bench import history
from tests import homes

ANN = Owner("default", "3")

pytestmark = pytest.mark.parametrize("store_url", homes.STORES, indirect=True)


@pytest.mark.parametrize("only", [None, "3"], ids=["everybody", "alone"])
async def test_a_history_is_written_in_slices(store_url, monkeypatch, only):
    monkeypatch.setattr(history, "SLICE", 7)
    await asyncio.to_thread(
        history.fill, store_url, 100, owners=5, only=only, fail=True
    )

    async with Backburner(Settings(store=store_url)) as bb:
        store = bb.engine.store
        jobs = await bb.engine.jobs(JobFilter(ANN), limit=99)
        ends = {job.id: await store.history(job.id, after=0, limit=9) for job in jobs}
        everybody = await store.count(JobFilter())
        [failures] = await store.failures(ANN, limit=9)
        told = (await store.stream(ANN, after=0, limit=99)).events

    failed = [job.id for job in jobs if job.state is JobState.FAILED]
    assert [*range(98, 0, -5)] == [job.seq for job in jobs]
    assert (20 if only else 100) == everybody
    assert {"job_3", "job_53"} == {*failed}
    assert 2 == failures.size
    assert 60 == len(told)
    assert all(
        ["job.queued", "job.started", f"job.{job.state}"]
        == [event.type for event in ends[job.id]]
        for job in jobs
    )
