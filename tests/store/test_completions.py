"""What the end of a job costs: only one with a completion pays for that."""

import shutil

import pytest

from backburner.domain.jobs.outcome import Done, Failed
from backburner.ports.store.jobs import ClaimRequest
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.sqlite.database import Database
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.doubles import FrozenClock
from backburner.testing.samples import NOON, a_new_job
from backburner.testing.store.acts import settlement
from backburner.testing.store.completions import FOLLOWED
from backburner.testing.store.linked import CALLBACK

CLAIM_REQUESTS = [ClaimRequest("default", 9)]
RESULTS = "SELECT id, capability, created_at, output, error"


@pytest.fixture
async def store(tmp_path, template):
    path = shutil.copy(template, tmp_path / "jobs.db")
    store = SqliteStore(Database(path), FrozenClock())
    await store.open()
    await store.enlist(WorkerInfo("w_1", "here", 1, 1, ("default",), NOON))
    yield store
    await store.close()


@pytest.fixture
def settled(store):
    """Have a job end; return the statements of that, by their first words."""

    async def settled(outcome, **fields):
        await store.submit([a_new_job(**fields)])
        [claim] = await store.claim("w_1", "t", CLAIM_REQUESTS, now=NOON)
        seen = []
        await store.transact(lambda tx: tx.driver.set_trace_callback(seen.append))
        await store.settle([settlement(claim, outcome)])
        await store.transact(lambda tx: tx.driver.set_trace_callback(None))
        first = seen.index("COMMIT") + 1
        last = seen.index("COMMIT", first)
        return [statement.split("\n")[0] for statement in seen[first:last]]

    return settled


@pytest.mark.parametrize("outcome", [Done("1"), Failed("BAD", "no", retryable=False)])
async def test_the_end_of_a_plain_job_reads_nothing_and_submits_nothing(
    settled, outcome
):
    told = await settled(outcome)

    verbs = [statement.split()[0] for statement in told]
    assert {"BEGIN", "SAVEPOINT", "UPDATE", "INSERT", "RELEASE"} == {*verbs}
    assert ["UPDATE jobs"] == [told[verbs.index("UPDATE")]]
    assert not [one for one in told if one.startswith("INSERT INTO jobs")]


async def test_only_a_completion_has_results_read(settled):
    reads = {
        name: [
            one for one in await settled(Done("1"), callback=callback) if RESULTS in one
        ]
        for name, callback in (("callback", CALLBACK), ("completion", FOLLOWED))
    }

    assert {"callback": 0, "completion": 1} == {n: len(r) for n, r in reads.items()}
