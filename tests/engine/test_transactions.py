"""Handlers read and write the database while they run, for as long as they hold."""

import asyncio
import threading
from datetime import timedelta

import pytest
import sqlalchemy as sa

from backburner import (
    Budget,
    BudgetExhausted,
    ClaimLost,
    Context,
    Flow,
    JobState,
    Owner,
    PermanentError,
    Transaction,
    TransactionTooLong,
    View,
    capability,
)
from backburner.domain.errors import BatchNotFound
from backburner.domain.jobs.retry import RetryPolicy
from backburner.engine.observability import telemetry
from backburner.ports.store.maintenance import JobFilter

LARGE = "x" * 200_000
"""Goes to the blob store, not into its row."""
HOUR = timedelta(hours=1)

notes = sa.Table("notes", sa.MetaData(), sa.Column("text", sa.Text, nullable=False))


def write(text):
    """Return a body that leaves a note and says how many there are."""

    def body(tx):
        tx.connection.execute(notes.insert(), {"text": text})
        return len(tx.connection.execute(sa.select(notes)).all())

    return body


def texts(view):
    return sorted(view.connection.execute(sa.select(notes.c.text)).scalars())


async def prepare(backburner):
    await backburner.transact(
        lambda tx: notes.create(tx.connection, checkfirst=True)  # the test's own table
    )
    return backburner


async def test_a_handler_commits_while_it_runs_and_reads_what_it_wrote(working):
    committed = asyncio.Event()
    go_on = asyncio.Event()

    @capability("writes")
    async def writes(ctx: Context, value: str) -> list[str]:
        assert 1 == await ctx.transact(write(value))
        committed.set()
        await go_on.wait()
        return await ctx.read(texts)

    backburner = await prepare(await working(writes))
    ticket = await backburner.submit(writes, "a")
    await committed.wait()
    seen = await backburner.read(texts)
    state = (await backburner.engine.find(ticket.id)).state
    go_on.set()

    assert (["a"], JobState.RUNNING) == (seen, state)
    assert ["a"] == await ticket.result()


async def test_what_else_is_given_is_passed_on_to_the_body(working):
    def add(tx: Transaction, first: str, *, second: str) -> int:
        write(first)(tx)
        return write(second)(tx)

    def begin_with(view: View, letter: str) -> list[str]:
        return [text for text in texts(view) if text.startswith(letter)]

    @capability("adds")
    async def adds(ctx: Context, value: str) -> tuple[int, list[str]]:
        count = await ctx.transact(add, value, second="b")
        return count, await ctx.read(begin_with, "b")

    backburner = await prepare(await working(adds))
    ticket = await backburner.submit(adds, "a")

    assert (2, ["b"]) == await ticket.result()
    assert 4 == await backburner.transact(add, "c", second="d")
    assert ["d"] == await backburner.read(begin_with, letter="d")


async def test_jobs_of_a_handlers_transaction_are_its_owners_and_are_run(working):
    @capability("child")
    async def child(_ctx: Context, value: int) -> int:
        return value + 1

    @capability("parent")
    async def parent(ctx: Context, value: int) -> str:
        def body(tx: Transaction) -> str:
            write("a")(tx)
            return tx.submit(child, value).id

        return await ctx.transact(body)

    backburner = await prepare(await working(parent, child))
    ticket = await backburner.submit(parent, 1, request_id="r1")
    job = await backburner.engine.wait(await ticket.result(), timeout=30)

    assert (JobState.SUCCEEDED, "2", "r1") == (job.state, job.output, job.request_id)


async def take_away(backburner, job_id):
    """Have a job be another worker's, before this one has noticed."""
    statement = sa.text("UPDATE jobs SET token = 'another' WHERE id = :id")
    await backburner.transact(
        lambda tx: tx.connection.execute(statement, {"id": job_id})
    )


@pytest.mark.parametrize("is_caught", [False, True])
async def test_a_handler_that_lost_its_job_is_told_so_and_its_attempt_is_over(
    working, until, is_caught
):
    started, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    before = telemetry.stale_completions._value.get()

    @capability("loses")
    async def loses(ctx: Context, _value: None) -> None:
        started.set()
        await go_on.wait()
        try:
            with pytest.raises(ClaimLost, match=ctx.job.id) as raised:
                await ctx.transact(write("never"))
            if not is_caught:
                raise raised.value
            await asyncio.Event().wait()
        finally:
            ended.set()

    backburner = await prepare(await working(loses, beat_seconds=3600))
    ticket = await backburner.submit(loses, None)
    await started.wait()
    await take_away(backburner, ticket.id)
    go_on.set()
    await ended.wait()
    await until(lambda: telemetry.stale_completions._value.get() > before)

    assert [] == await backburner.read(texts)
    assert JobState.RUNNING is (await backburner.engine.find(ticket.id)).state


async def test_an_attempt_whose_transaction_takes_too_long_fails_and_is_retried(
    working,
):
    is_slow = [True]

    @capability("slow", retry=RetryPolicy(max_attempts=2))
    async def slow(ctx: Context, _value: None) -> None:
        def body(tx: Transaction) -> None:
            write("a")(tx)
            if is_slow.pop() if is_slow else False:
                threading.Event().wait(0.4)

        await ctx.transact(body)

    backburner = await prepare(await working(slow, transaction_seconds=0.2))
    ticket = await backburner.submit(slow, None)
    await ticket.result()
    [first, second] = await backburner.engine.attempts(
        await backburner.engine.find(ticket.id)
    )

    assert "TRANSACTION_TOO_LONG" == first.error["code"]
    assert None is second.error
    assert ["a"] == await backburner.read(texts)


async def test_a_transaction_of_an_application_is_limited_likewise(submitting):
    backburner = await prepare(await submitting(transaction_seconds=0.2))

    def body(tx):
        write("never")(tx)
        threading.Event().wait(0.4)

    with pytest.raises(TransactionTooLong):
        await backburner.transact(body)

    assert [] == await backburner.read(texts)


async def test_without_a_job_a_handler_reads_and_cannot_write(submitting):
    @capability("here")
    async def here(ctx: Context, _value: None) -> list[str]:
        seen = await ctx.read(texts)
        with pytest.raises(PermanentError, match="only a job"):
            await ctx.transact(write("never"))
        return seen

    backburner = await prepare(await submitting(here))

    assert [] == await backburner.run(here, None)
    assert [] == await backburner.read(texts)


@capability("measure")
async def measure(_ctx: Context, text: str) -> int:
    return len(text)


@capability("double")
async def double(_ctx: Context, size: int) -> int:
    return 2 * size


def a_flow(text):
    flow = Flow()
    flow.add(double, after=[flow.add(measure, text)])
    return flow


def an_expensive_flow():
    flow = Flow()
    flow.add(measure, "a", tokens=6)
    return flow


async def groups_ended(backburner, flow, *batches):
    """Wait for groups; return the flow's result and the batches' counts."""
    await backburner.engine.flows.wait(flow, timeout=30)
    steps = await backburner.engine.flows.steps(
        await backburner.engine.flows.find(flow)
    )
    [last] = await backburner.engine.store.find([steps[-1].job.id])
    counts = []
    for batch in batches:
        ended = await backburner.engine.batches.wait(batch, timeout=30)
        counts.append(
            (await backburner.engine.batches.counts(ended))["jobs"]["succeeded"]
        )
    return last.output, counts


def submit_groups(tx, open_batch):
    """Submit a flow, a batch, and members of one that is open; with large inputs."""
    flow = tx.submit_flow(a_flow(LARGE)).id
    batch = tx.open_batch([(measure, LARGE), ("double", 4)], [a_flow("ab")]).id
    added = tx.add_to_batch(open_batch, [(measure, LARGE)], [a_flow("abc")], seal=True)
    assert 2 == len(added)
    return flow, batch


async def test_groups_of_an_applications_transaction_are_run(working):
    backburner = await working(measure, double, poll_seconds=3600)
    opened = await backburner.open_batch(sealed=False)

    flow, batch = await backburner.transact(lambda tx: submit_groups(tx, opened.id))

    assert ("400000", [4, 3]) == await groups_ended(backburner, flow, batch, opened.id)


@pytest.mark.parametrize("verb", ["transact", "at_settlement"])
async def test_groups_of_a_handlers_transaction_are_run(working, verb):
    ids = []

    @capability("parent")
    async def parent(ctx: Context, open_batch: str) -> None:
        def body(tx: Transaction) -> None:
            ids[:] = submit_groups(tx, open_batch)

        made = getattr(ctx, verb)(body)
        if made is not None:
            await made

    backburner = await working(parent, measure, double, poll_seconds=3600)
    opened = await backburner.open_batch(sealed=False)
    await (await backburner.submit(parent, opened.id)).result()

    assert ("400000", [4, 3]) == await groups_ended(backburner, *ids, opened.id)


async def test_members_under_a_key_are_stored_once_however_often_a_job_runs(working):
    runs = []

    @capability("fills", retry=RetryPolicy(max_attempts=3, base=timedelta()))
    async def fills(ctx: Context, batch: str) -> None:
        key = f"{ctx.job.id}:members"
        await ctx.transact(
            lambda tx: tx.add_to_batch(
                batch, [(measure, "a"), (measure, "b")], idempotency_key=key
            )
        )
        runs.append(ctx.job.attempt)
        if len(runs) < 3:
            raise ValueError("again")

    backburner = await working(fills, measure)
    opened = await backburner.open_batch(sealed=False)
    await (await backburner.submit(fills, opened.id)).result()

    assert [1, 2, 3] == runs
    assert 2 == (await opened.counts())["total"]


async def test_a_batch_of_another_owner_takes_nothing(submitting):
    backburner = await submitting(measure)
    opened = await backburner.open_batch(sealed=False, owner=Owner("acme", "ann"))

    def body(tx):
        tx.submit(measure, "a", tags=["never"])
        tx.add_to_batch(opened.id, [(measure, "a")], owner=Owner("acme", "bob"))

    with pytest.raises(BatchNotFound):
        await backburner.transact(body)

    assert 0 == (await opened.counts())["total"]
    assert [] == list(await backburner.engine.jobs(JobFilter(tag="never")))


async def test_a_budget_refuses_a_transaction_as_a_whole(submitting):
    backburner = await submitting(measure)
    await backburner.engine.budgets.put(Budget("user", tokens=10, per=HOUR))
    backburner.engine.store.rulebook.forget()

    def body(tx):
        tx.submit_flow(an_expensive_flow())
        tx.open_batch(flows=[an_expensive_flow()])

    with pytest.raises(BudgetExhausted):
        await backburner.transact(body)

    assert [] == list(await backburner.engine.jobs(JobFilter()))


async def test_a_transaction_names_the_jobs_of_the_flow_that_it_submits(working):
    backburner = await working(measure, double)
    seen = {}

    def body(tx):
        flow = tx.submit_flow(a_flow("ab"), idempotency_key="one").id
        seen["now"] = tx.now()
        return flow, dict(tx.step_ids(flow))

    flow, jobs = await backburner.transact(body)

    assert abs(seen["now"] - backburner.engine.now()) < 60_000
    for step, job_id in jobs.items():
        job = await backburner.engine.find(job_id)
        assert (step, flow) == (job.step, job.flow_id)
    # A flow that a key stands for was submitted by another transaction.
    with pytest.raises(KeyError):
        await backburner.transact(body)
