from backburner.domain.jobs.job import JobState
from backburner.engine.groups import retrying
from backburner.ports.store.keys import AuditEntry
from backburner.testing.doubles import NOON
from backburner.testing.samples import a_job


class Failed:
    """A store of failed jobs that notes in which order they are reopened."""

    def __init__(self, count):
        self.all = [a_job(seq=n, state=JobState.FAILED) for n in range(1, count + 1)]
        self.reopened = []
        self.recorded = []

    async def jobs(self, _where, *, before, limit):
        older = [job for job in self.all if before is None or job.seq < before]
        return older[::-1][:limit]

    async def reopen(self, moves, *, entries=()):
        self.reopened.append([move.seq for move in moves])
        self.recorded += entries
        return [True] * len(moves)


async def test_the_oldest_are_retried_first_over_all_pages(monkeypatch):
    monkeypatch.setattr(retrying, "PAGE", 2)
    store = Failed(5)

    entry = AuditEntry(NOON, "acme", "key", "batch.retried", "batch_1")
    retried = await retrying.retry_failed(store, now=NOON, batch=1, entries=[entry])
    assert 5 == retried
    assert [[1, 2], [3, 4], [5]] == store.reopened
    assert [entry] == store.recorded, "with the first page only"
