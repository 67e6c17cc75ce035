"""Workers killed while jobs wait and as they are signalled: none waits for ever."""

from collections import Counter

import pytest

from backburner.domain.jobs.job import JobState

JOBS = 5
FAULTS = [
    *("wait.opening:3", "wait.settling:3", "signal.stored:2", "signal.woken:2"),
]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_worker_that_ends_around_a_wait_loses_nothing(
    fleet, client, tmp_path, eventually, fault
):
    journal = tmp_path / "journal"
    values = [{"path": str(journal), "number": n} for n in range(JOBS)]
    jobs = await client.submit("waits", *values)
    first = fleet.worker("suspending", BACKBURNER_FAULT=fault)
    for n, job in enumerate(jobs[:2]):  # some signals come before their waits
        assert await client.engine.signal(job, "go", n)
    if fault.startswith("wait."):
        assert 0 != await first.ended()
        await fleet.worker("suspending").ready()
    for n, job in enumerate(jobs[2:], 2):
        assert await client.engine.signal(job, "go", n)
    if fault.startswith("signal."):  # by the job that tells a parent of its child
        assert 0 != await first.ended()
        await fleet.worker("suspending").ready()
    done = await client.ended(jobs)
    states = {job.id: (job.state, job.output) for job in done}
    for n, job in enumerate(jobs):
        assert (JobState.SUCCEEDED, f"[{n},{n}]") == states[job]
    runs = Counter(journal.read_text().split())
    assert {f"{name}-{n}" for n in range(JOBS) for name in ("before", "between")} == (
        set(runs)
    )
    # A crash repeats a step only if its result was not stored.
    assert runs.total() <= 2 * JOBS + JOBS

    async def is_at_rest():  # a parent may end before the job that told it of its child
        return not await client.store.depths()

    await eventually(is_at_rest)
    assert [] == await client.audit()
