"""Large inputs and outputs from Python, on both databases: in folders, not in rows."""

import errno
import os
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel

from backburner import (
    Backburner,
    Context,
    Flow,
    IdempotencyConflict,
    JobEnd,
    JobFailed,
    JobState,
    Owner,
    PermanentError,
    RetryPolicy,
    Settings,
    capability,
)
from backburner.clock import SystemClock
from backburner.domain.blobs.blob import LARGE, MARK
from backburner.domain.errors import (
    BlobMissing,
    IllegalTransition,
    StoreUnavailable,
)
from backburner.engine.blobs.payloads import Sweeper
from backburner.engine.maintenance.upkeep import Upkeep, UpkeepOptions
from backburner.engine.submit.submission import LOCAL, GroupOptions, Options
from backburner.ports.faults import NoFaults
from backburner.ports.store.maintenance import JobFilter, Retention
from backburner.testing.doubles import SilentNotifier
from tests.databases import each_store

QUOTES = 2
FIVE_MIB = "x" * (5 * 1024 * 1024)
ONCE = RetryPolicy(max_attempts=1)
NO_RETENTION = Retention(timedelta(), timedelta(), timedelta())


@capability("echo")
async def echo(_ctx: Context, value: str) -> str:
    return value


@capability("measure")
async def measure(_ctx: Context, value: str) -> int:
    return len(value)


@capability("refuse", retry=ONCE)
async def refuse(_ctx: Context, _value: str) -> str:
    raise PermanentError("no")


@capability("keep")
async def keep(ctx: Context, value: str) -> str:
    return await ctx.blobs.put(value.encode())


@capability("fetch", retry=ONCE)
async def fetch(ctx: Context, blob_id: str) -> str:
    return (await ctx.blobs.get(blob_id)).decode()


class Ended(BaseModel):
    job: JobEnd


@capability("measure-output", queue="after")
async def measure_output(_ctx: Context, value: Ended) -> int:
    return len(value.job.output)


@capability("pass-on")
async def pass_on(ctx: Context, value: str) -> None:
    ctx.at_settlement(lambda tx: tx.submit("measure", value, tags=["passed on"]))


store_url = each_store


@pytest.fixture
def root(tmp_path):
    return tmp_path / "contents"


@pytest.fixture
async def backburner(store_url, root):
    settings = Settings(store=store_url, blobs=root.as_uri(), poll_seconds=0.2)
    known = [echo, measure, refuse, keep, fetch, pass_on, measure_output]
    async with Backburner(settings, capabilities=known) as backburner:
        yield backburner


@pytest.fixture
async def working(backburner):
    await backburner.start_worker()
    return backburner


def contents(root: Path) -> list[str]:
    """Return the names of what is kept."""
    return sorted(
        path.name.partition("-")[0] for path in root.rglob("*") if path.is_file()
    )


async def row(backburner, ticket):
    """Return a job as its row has it."""
    return (await backburner.engine.store.find([ticket.id]))[0]


@pytest.mark.parametrize(
    ("size", "expected"),
    [(LARGE - 1, []), (LARGE, []), (LARGE + 1, ["input", "output"])],
)
async def test_what_is_over_64_kib_is_kept_apart(working, root, size, expected):
    text = "x" * (size - QUOTES)
    ticket = await working.submit(echo, text)
    result = await ticket.result()
    job, stored = await ticket.job(), await row(working, ticket)

    assert text == result
    assert expected == contents(root)
    assert (f'"{text}"', f'"{text}"') == (job.input, job.output)
    assert (bool(expected), bool(expected)) == (
        stored.input.startswith(MARK),
        stored.output.startswith(MARK),
    )


async def test_bytes_are_counted_and_not_characters(working, root):
    text = "ü" * (LARGE // 2)
    ticket = await working.submit(echo, text)

    assert text == await ticket.result()
    assert ["input", "output"] == contents(root)


async def test_five_mib_go_in_and_come_out(working):
    ticket = await working.submit(echo, FIVE_MIB)

    assert await ticket.result() == FIVE_MIB
    assert len((await row(working, ticket)).output) < 200


async def test_a_text_that_looks_like_a_reference_is_a_text(working, root):
    secret = await (await working.submit(keep, "secret")).result()
    text = f"{MARK}{secret}:6"

    assert text == await (await working.submit(echo, text)).result()
    assert 1 == len(contents(root))


async def test_a_dead_letter_runs_again_on_the_same_content(working, root):
    ticket = await working.submit(refuse, FIVE_MIB)
    failed = await ticket.wait()
    retried = await working.retry(ticket.id)
    again = await ticket.wait()

    assert JobState.FAILED is failed.state is again.state
    assert ("PERMANENT", 1) == (again.error.code, again.generation)
    assert f'"{FIVE_MIB}"' == retried.input
    assert ["input"] == contents(root)


async def test_a_content_that_is_gone_fails_the_job_for_good(backburner):
    ticket = await backburner.submit(measure, FIVE_MIB)
    backburner.engine.payloads._blobs.delete([ticket.id])
    await backburner.start_worker()
    job = await ticket.wait()

    assert (JobState.FAILED, "BLOB_MISSING", 1) == (
        job.state,
        job.error.code,
        job.attempt,
    )
    with pytest.raises(JobFailed, match="BLOB_MISSING"):
        await ticket.result()


async def test_a_content_that_was_cut_short_is_gone(backburner, root):
    ticket = await backburner.submit(measure, FIVE_MIB)
    (path,) = [path for path in root.rglob("input") if path.is_file()]
    os.truncate(path, 100)
    await backburner.start_worker()

    assert "BLOB_MISSING" == (await ticket.wait()).error.code


async def test_an_output_that_is_gone_is_said(working):
    ticket = await working.submit(echo, FIVE_MIB)
    await ticket.wait()
    working.engine.payloads._blobs.delete([ticket.id])

    with pytest.raises(BlobMissing):
        await ticket.result()


async def test_a_repeat_under_one_key_keeps_one_content(backburner, root):
    first = await backburner.submit(echo, FIVE_MIB, idempotency_key="k")
    again = await backburner.submit(echo, FIVE_MIB, idempotency_key="k")

    assert (first.id, True) == (again.id, again.replayed)
    assert ["input"] == contents(root)
    assert f'"{FIVE_MIB}"' == (await first.job()).input


async def test_another_content_under_one_key_is_refused_and_not_kept(backburner, root):
    await backburner.submit(echo, FIVE_MIB, idempotency_key="k")

    with pytest.raises(IdempotencyConflict):
        await backburner.submit(echo, FIVE_MIB + "y", idempotency_key="k")
    assert ["input"] == contents(root)


def a_flow(text):
    flow = Flow()
    flow.add(echo, text)
    return flow


async def test_a_repeated_flow_keeps_one_content(backburner, root):
    first = await backburner.submit_flow(a_flow(FIVE_MIB), idempotency_key="k")
    again = await backburner.submit_flow(a_flow(FIVE_MIB), idempotency_key="k")
    with pytest.raises(IdempotencyConflict):
        await backburner.submit_flow(a_flow(FIVE_MIB + "y"), idempotency_key="k")

    assert first.id == again.id
    assert ["input"] == contents(root)
    assert f'"{FIVE_MIB}"' == (await first.steps())["echo"].input


async def test_a_repeated_batch_keeps_its_contents_once(backburner, root):
    batches = backburner.engine.batches
    options = GroupOptions(idempotency_key="k")

    def members(key=None):
        jobs = [("echo", FIVE_MIB, Options())]
        return batches.members(jobs, [(a_flow(FIVE_MIB), GroupOptions())], key=key)

    first = await batches.open(options, members(), sealed=False)
    again = await batches.open(options, members(), sealed=False)
    after_open = contents(root)
    filled = await batches.fill(first.id, LOCAL, members("m"))
    repeated = await batches.fill(first.id, LOCAL, members("m"), seal=True)
    after_fill = contents(root)
    with pytest.raises(IllegalTransition):
        await batches.fill(first.id, LOCAL, members("n"))

    assert first.id == again.id
    assert [one.id for one in filled] == [one.id for one in repeated]
    assert ["input"] * 2 == after_open
    assert ["input"] * 4 == after_fill
    assert after_fill == contents(root), "nothing of what was refused"


async def test_what_cannot_be_put_away_as_a_whole_leaves_nothing(
    backburner, root, monkeypatch
):
    flow = a_flow(FIVE_MIB)
    flow.add(echo, FIVE_MIB)
    rename, is_first = os.rename, iter([True])

    def fail_later(*paths, **folders):
        rename(*paths, **folders)
        if not next(is_first, False):
            raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "rename", fail_later)
    with pytest.raises(StoreUnavailable):
        await backburner.submit_flow(flow)

    assert [] == contents(root)


async def test_a_large_job_of_a_transaction_is_kept_apart(working, root):
    submitted = await working.transact(lambda tx: tx.submit("measure", FIVE_MIB))
    job = await working.engine.wait(submitted.id, timeout=60)

    assert str(len(FIVE_MIB)) == job.output
    assert ["input"] == contents(root)


async def test_a_large_job_of_a_settlement_is_kept_apart(working, root):
    ticket = await working.submit(pass_on, FIVE_MIB)
    await ticket.result()

    assert ["input", "input"] == contents(root)


async def test_what_a_handler_keeps_is_had_by_its_owners_other_jobs(working):
    blob_id = await (await working.submit(keep, "mine")).result()

    assert "mine" == await (await working.submit(fetch, blob_id)).result()


@pytest.mark.parametrize("blob_id", ["", "../x", "job_1.input", "a.b.c", "job_1"])
async def test_an_id_that_names_nothing_is_no_blob(working, blob_id):
    job = await (await working.submit(fetch, blob_id)).wait()

    assert (JobState.FAILED, "BLOB_MISSING") == (job.state, job.error.code)


async def test_what_a_handler_keeps_is_not_had_by_strangers(working):
    blob_id = await (await working.submit(keep, "mine")).result()
    ticket = await working.submit(fetch, blob_id, owner=Owner("default", "2"))
    job = await ticket.wait()

    assert (JobState.FAILED, "BLOB_MISSING") == (job.state, job.error.code)


async def test_contents_go_with_their_jobs(working, root):
    await (await working.submit(echo, FIVE_MIB)).result()
    await (await working.submit(keep, "small")).result()
    stays = await working.submit(echo, FIVE_MIB, delay=timedelta(days=1))
    before = contents(root)
    await prune(working)

    assert 4 == len(before)
    assert ["input"] == contents(root)
    assert f'"{FIVE_MIB}"' == (await stays.job()).input


async def prune(backburner):
    """Forget every job that has ended, and its contents."""
    upkeep = Upkeep(
        backburner.engine.store,
        SilentNotifier(),
        SystemClock(),
        NoFaults(),
        UpkeepOptions(retention=NO_RETENTION),
        backburner.engine.payloads,
    )
    await upkeep.prune()


async def test_an_output_is_kept_until_the_completion_of_its_job_has_ended(
    working, root
):
    store, payloads = working.engine.store, working.engine.payloads
    await store.pause("after", paused=True)
    ticket = await working.submit(
        echo, FIVE_MIB, completion={"capability": measure_output}
    )
    await ticket.wait()
    [listed] = await store.jobs(JobFilter(state=JobState.QUEUED), before=None, limit=9)
    await prune(working)
    age(root, listed.id, days=2)
    await Sweeper(store, payloads, SystemClock()).sweep()
    found = await store.find([ticket.id, listed.id])
    await store.pause("after", paused=False)
    done = await working.engine.wait(listed.id, timeout=30)

    assert [listed.id] == [job.id for job in found], "the job itself is gone"
    assert (JobState.SUCCEEDED, str(len(FIVE_MIB))) == (done.state, done.output)
    assert f'"{FIVE_MIB}"' in (await payloads.whole(done)).input
    await prune(working)
    assert [] == contents(root)


async def test_only_what_no_job_has_is_swept_and_only_when_it_is_old(backburner, root):
    kept = await backburner.submit(echo, FIVE_MIB)
    payloads = backburner.engine.payloads
    orphans = [backburner.engine.prepare(echo, FIVE_MIB, Options()) for _ in range(3)]
    await payloads.stow_inputs(orphans)
    age(root, orphans[0].id, days=2)
    age(root, orphans[1].id, days=2)
    age(root, kept.id, days=2)
    await Sweeper(backburner.engine.store, payloads, SystemClock()).sweep()
    left = {path.parent.name for path in root.rglob("input")}

    assert {kept.id, orphans[2].id} == left


def age(root, job_id, *, days):
    """Have a job's contents look as if they had been put long ago."""
    (folder,) = root.rglob(job_id)
    then = SystemClock().now() / 1000 - days * 86_400
    os.utime(folder, (then, then))
