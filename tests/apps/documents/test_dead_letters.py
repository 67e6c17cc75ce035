"""Stages that fail: attempts, delays, dead letters, and retries by every route."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from backburner import PermanentError
from backburner.engine.submit.submission import LOCAL
from backburner.ports.store.maintenance import Retention
from backburner.stores.tables import events, jobs
from backburner_apps.documents import changes, dead_letters, work
from backburner_apps.documents.chunk_tables import chunks
from tests.apps.documents.conftest import FAST, TEXT, UPLOADS, until

STAGES = {
    "extracting": ("extract_text", "extract", "queued", (5_000, 10_000)),
    "chunking": ("split", "chunk", "chunking", (3_000, 6_000)),
    "embedding": ("embed_chunks", "embed", "embedding", (3_000, 6_000)),
}
"""By stage: the function that fails, the step, the state after a retry, the delays."""
BROKEN = RuntimeError("the parser broke")
DAY = 24 * 60 * 60 * 1000


class Failing:
    """Has the function of one stage raise for as long as it is broken."""

    def __init__(self, monkeypatch):
        self._patch = monkeypatch
        self.is_broken = True
        self.calls = {}

    def break_stage(self, stage, error=BROKEN):
        for name, *_ in STAGES.values():
            self._patch.setattr(work, name, self._counted(name))
        name = STAGES[stage][0]
        good = getattr(work, name)

        async def broken(*args):
            if self.is_broken:
                self.calls[name] = self.calls.get(name, 0) + 1
                raise error
            return await good(*args)

        self._patch.setattr(work, name, broken)

    def _counted(self, name):
        good = getattr(work, name)

        async def counted(*args):
            self.calls[name] = self.calls.get(name, 0) + 1
            return await good(*args)

        return counted


@pytest.fixture
def failing(monkeypatch):
    return Failing(monkeypatch)


async def due_at_once(documents):
    """Have what waits for its next attempt be due, as if the time had passed."""

    def body(tx):
        waits = jobs.c.state == "scheduled", jobs.c.capability.like("documents.%")
        tx.connection.execute(jobs.update().where(*waits).values(run_at=tx.now()))

    await documents.backburner.transact(body)


@pytest.mark.one_store
@pytest.mark.parametrize("stage", STAGES)
async def test_a_stage_is_tried_three_times_then_it_is_a_dead_letter(
    start, failing, stage
):
    failing.break_stage(stage)
    documents = await start()
    batch_id = await documents.batch()
    file_id = await documents.upload(batch_id)
    file = await documents.ended(file_id)
    letters = (await documents.get(f"{UPLOADS}/dlq")).json()
    [entry] = letters["entries"]

    assert (file["status"], file["stage"]) == ("failed", stage)
    assert letters["total"] == 1
    assert (entry["fileId"], entry["batchId"]) == (file_id, batch_id)
    assert (entry["stage"], entry["attempts"]) == (stage, 3)
    assert entry["error"] == file["error"]
    assert "RuntimeError" in entry["stack"]
    assert entry["failedAt"]
    assert "retriedAt" not in entry
    assert failing.calls[STAGES[stage][0]] == 3


@pytest.mark.parametrize("stage", STAGES)
async def test_a_retry_resumes_at_the_stage_that_failed(start, failing, stage):
    resumed, order = STAGES[stage][2], list(STAGES)
    failing.break_stage(stage)
    documents = await start()
    batch_id = await documents.batch()
    file_id = await documents.upload(batch_id)
    await documents.until_event(batch_id, "batch:completed")
    failing.is_broken, before = False, dict(failing.calls)
    answer = await documents.post(f"{UPLOADS}/dlq/{file_id}/retry")
    await documents.until_file(file_id, "ready")
    [_, last] = await documents.until_event(batch_id, "batch:completed", 2)

    assert answer.json() == {"success": True}
    assert last["summary"] == {"total": 1, "ready": 1, "failed": 0}
    path = await documents.path_of(batch_id, file_id)
    assert ("failed", resumed) in path
    assert path[-1] == ("embedding", "ready")
    for earlier in order[: order.index(stage)]:
        name = STAGES[earlier][0]
        assert failing.calls[name] == before[name], f"{earlier} ran again"
    [line] = documents.lines("DLQ entry retried")
    assert (line["fileId"], line["stage"]) == (file_id, stage)
    assert line["resetState"] == resumed
    assert (await documents.get(f"{UPLOADS}/dlq")).json()["total"] == 0
    again = await documents.post(f"{UPLOADS}/dlq/{file_id}/retry")
    assert again.status_code == 404
    rows = [row for row in await documents.rows(chunks) if row.file_id == file_id]
    assert len(rows) == 1


async def test_a_retry_that_is_shown_meanwhile_is_published_once(
    start, failing, monkeypatch
):
    """The request changes the file after its event was read, before it is applied."""
    failing.break_stage("chunking")
    documents = await start()
    batch_id = await documents.batch()
    file_id = await documents.upload(batch_id)
    await documents.until_event(batch_id, "batch:completed")
    failing.is_broken, find, resumed = False, changes.find, []

    def resume_after(tx, *args):
        found = find(tx, *args)
        if found.status == "failed" and not resumed:
            resumed.append(found.id)
            dead_letters._resume(tx, found, "chunking", "1")
        return found

    monkeypatch.setattr(changes, "find", resume_after)
    await documents.backburner.engine.retry((await documents.row(file_id)).dead_job)
    await documents.until_file(file_id, "ready")
    path = await documents.path_of(batch_id, file_id)

    assert [file_id] == resumed
    assert 1 == path.count(("failed", "chunking"))
    assert ("chunking", "chunking") not in path


@pytest.mark.one_store
@pytest.mark.parametrize("stage", STAGES)
async def test_the_delays_are_those_of_the_contract(start, failing, stage):
    _, step, _, expected = STAGES[stage]
    failing.break_stage(stage)
    rates = {name: 0 for name in FAST if "per_minute" in name}
    seconds = {
        "extract_retry_seconds": 5,
        "chunk_retry_seconds": 3,
        "embed_retry_seconds": 3,
    }
    documents = await start(**rates, **seconds)
    file_id = await documents.upload(await documents.batch())
    found = []

    async def look():
        """Note how long the job is to wait, then have it due."""
        jobs_ = (await documents.get("/v1/jobs", tag=f"{step}:{file_id}")).json()
        [job] = jobs_["items"]
        if job["state"] == "scheduled" and len(found) < job["attempt"]:
            [*_, last] = await retrying(documents, job["id"])
            found.append((await run_at(documents, job["id"])) - last)
            await due_at_once(documents)
        return job["state"] == "failed"

    await until(look)
    assert tuple(found) == expected
    entry = (await documents.get(f"{UPLOADS}/dlq")).json()["entries"]
    assert [each["attempts"] for each in entry] in ([3], [])


async def retrying(documents, job_id):
    """Return when the failed attempts of a job ended."""

    def look(view):
        rows = (
            sa.select(events.c.at)
            .join(jobs, events.c.job == jobs.c.seq)
            .where(events.c.type == "job.retrying", jobs.c.id == job_id)
            .order_by(events.c.seq)
        )
        return list(view.connection.execute(rows).scalars())

    return await documents.backburner.read(look)


async def run_at(documents, job_id):
    def look(view):
        row = sa.select(jobs.c.run_at).where(jobs.c.id == job_id)
        return view.connection.execute(row).scalar_one()

    return await documents.backburner.read(look)


@pytest.mark.parametrize(
    "route",
    ["/v1/dead-letters/{job}/retry", "/v1/jobs/{job}/retry", "/v1/flows/{flow}/retry"],
)
async def test_a_retry_by_the_engines_routes_reopens_the_file_and_its_batch(
    start, failing, route
):
    failing.break_stage("chunking")
    documents = await start()
    batch_id = await documents.batch()
    file_id = await documents.upload(batch_id)
    await documents.until_event(batch_id, "batch:completed")
    failing.is_broken = False
    row = await documents.row(file_id)
    answer = await documents.post(route.format(job=row.dead_job, flow=row.flow_id))
    assert answer.status_code < 300, answer.text
    await documents.until_file(file_id, "ready")
    [_, last] = await documents.until_event(batch_id, "batch:completed", 2)
    assert last["summary"] == {"total": 1, "ready": 1, "failed": 0}
    path = await documents.path_of(batch_id, file_id)
    assert path[-3:] == [
        ("failed", "chunking"),
        ("chunking", "embedding"),
        ("embedding", "ready"),
    ]


async def test_retry_all_gives_a_result_for_each_file(start, failing):
    failing.break_stage("embedding")
    documents = await start()
    batch_id = await documents.batch(3)
    ids = [await documents.upload(batch_id, b"file %d" % n) for n in range(3)]
    await documents.until_event(batch_id, "batch:completed")
    page = (await documents.get(f"{UPLOADS}/dlq", limit=2, offset=1)).json()
    assert (len(page["entries"]), page["total"]) == (2, 3)
    failing.is_broken = False
    results = (await documents.post(f"{UPLOADS}/dlq/retry-all")).json()["results"]
    assert sorted(each["fileId"] for each in results) == sorted(ids)
    assert all(each["success"] for each in results)
    [_, last] = await documents.until_event(batch_id, "batch:completed", 2)
    assert last["summary"]["ready"] == 3


@pytest.mark.one_store
async def test_a_retry_that_fails_again_is_a_dead_letter_with_its_history(
    start, failing
):
    failing.break_stage("chunking", PermanentError("it cannot be split"))
    documents = await start()
    batch_id = await documents.batch()
    file_id = await documents.upload(batch_id)
    await documents.until_event(batch_id, "batch:completed")
    await documents.post(f"{UPLOADS}/dlq/{file_id}/retry")
    await documents.until_event(batch_id, "batch:completed", 2)
    [entry] = (await documents.get(f"{UPLOADS}/dlq")).json()["entries"]
    assert (entry["error"], entry["attempts"]) == ("it cannot be split", 1)
    assert entry["retriedBy"] == LOCAL.user
    assert entry["retriedAt"] <= entry["failedAt"]


@pytest.mark.one_store
async def test_who_reads_the_tenant_sees_and_retries_all_and_only_they_see_stacks(
    start, failing
):
    failing.break_stage("extracting")
    documents = await start(keyed=True)
    ada = await documents.key("ada")
    boss = await documents.key(
        None, "dead-letters:read", "dead-letters:retry", "tenant:read", "jobs:read"
    )
    batch_id = await ada.batch()
    file_id = await ada.upload(batch_id)
    await ada.until_event(batch_id, "batch:completed")
    [mine] = (await ada.get(f"{UPLOADS}/dlq")).json()["entries"]
    [seen] = (await boss.get(f"{UPLOADS}/dlq")).json()["entries"]
    assert "stack" not in mine
    assert "RuntimeError" in seen["stack"]
    failing.is_broken = False
    assert (await boss.post(f"{UPLOADS}/dlq/{file_id}/retry")).status_code == 200
    await ada.until_file(file_id, "ready")


@pytest.mark.one_store
async def test_dead_letters_go_by_age(start, failing):
    failing.break_stage("extracting")
    documents = await start(dead_letter_days=0.000001)
    batch_id = await documents.batch()
    file_id = await documents.upload(batch_id)
    await documents.until_event(batch_id, "batch:completed")
    from tests.apps.documents.test_uploads import end_overdue  # noqa: PLC0415

    async def look():
        await end_overdue(documents)
        return (await documents.get(f"{UPLOADS}/dlq")).json()["total"] == 0

    await until(look)
    assert (await documents.file(file_id))["status"] == "failed"
    assert (await documents.post(f"{UPLOADS}/dlq/{file_id}/retry")).status_code == 404


@pytest.mark.one_store
async def test_an_expired_stage_fails_the_file(start):
    documents = await start(works=False)
    batch_id = await documents.batch()
    file_id = await documents.upload(batch_id)
    row = await documents.row(file_id)

    def body(tx):
        mine = jobs.c.tags.contains(f"extract:{file_id}")
        tx.connection.execute(jobs.update().where(mine).values(expires_at=1))

    await documents.backburner.transact(body)
    file = await documents.ended(file_id)
    assert (file["stage"], file["errorCode"]) == ("extracting", "EXPIRED")
    assert row.flow_id


@pytest.mark.one_store
async def test_a_flow_that_is_cancelled_ends_the_file(start):
    documents = await start(works=False)
    batch_id = await documents.batch()
    file_id = await documents.upload(batch_id)
    row = await documents.row(file_id)
    await documents.post(f"/v1/flows/{row.flow_id}/cancel")
    file = await documents.ended(file_id)
    assert (file["status"], file["errorCode"]) == ("failed", "CANCELLED")
    await documents.backburner.start_worker()
    await documents.completed(batch_id)
    assert (await documents.get(f"{UPLOADS}/dlq")).json()["total"] == 0


@pytest.mark.one_store
async def test_the_last_state_stays_when_the_jobs_are_forgotten(start):
    documents = await start()
    batch_id = await documents.batch()
    file_id = await documents.upload(batch_id)
    await documents.until_event(batch_id, "batch:completed")
    row = await documents.row(file_id)
    store = documents.backburner.engine.store
    keep = Retention(succeeded=timedelta(), failed=timedelta(), cancelled=timedelta())
    later = documents.backburner.engine.now() + 100 * DAY

    async def forgotten():
        await store.prune(keep=keep, now=later, limit=100)
        return (await documents.get(f"/v1/flows/{row.flow_id}")).status_code == 404

    await until(forgotten)
    assert (await documents.file(file_id))["status"] == "ready"
    assert (await documents.show(batch_id))["status"] == "completed"


@pytest.mark.one_store
async def test_a_file_without_text_fails_in_its_stage(start):
    documents = await start()
    batch_id = await documents.batch(3)
    blank = await documents.upload(batch_id, b" \n\n ", "blank.txt")
    empty = await documents.upload(batch_id, b"", "empty.txt")
    good = await documents.upload(batch_id, TEXT)
    await documents.completed(batch_id)
    found = {each: await documents.file(each) for each in (blank, empty, good)}
    assert found[good]["status"] == "ready"
    assert found[empty]["errorCode"] == "EMPTY_FILE"
    assert found[blank]["status"] == "failed"
    letters = (await documents.get(f"{UPLOADS}/dlq")).json()["entries"]
    assert {each["attempts"] for each in letters} == {1}, "neither can change"
    lines = documents.lines("Extraction failed")
    assert any(line["fileId"] == empty for line in lines)
