"""A worker that is told to stop while models are asked: who answers in the end."""

import json
import signal

from backburner.settings import Settings
from tests.apps.tasks.deployment import balance, rows

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2]
REQUESTS = 3
UNHURRIED = {"BACKBURNER_LEASE_SECONDS": "600", "BACKBURNER_POLL_SECONDS": "30"}
"""Nobody finds by himself, or by a lease that ran out, what he is not told of."""
HISTORY = """
SELECT job, type, at, data FROM events
 WHERE job IN (SELECT seq FROM jobs WHERE capability = 'parse-task') ORDER BY job, n
"""


async def histories(url):
    """Return the events of each request's first step."""
    found = {}
    for row in await rows(url, HISTORY):
        event = (
            row["type"].removeprefix("job."),
            row["at"],
            json.loads(row["data"] or "{}"),
        )
        found.setdefault(row["job"], []).append(event)
    return list(found.values())


def kinds(history):
    return [kind for kind, *_ in history]


def test_those_in_flight_are_waited_for_30_seconds_unless_it_is_set():
    assert 30 == Settings.model_fields["grace_seconds"].default


async def test_calls_in_flight_may_end_and_the_worker_leaves_with_0(
    deployment, llm, migrated_url
):
    await deployment.start_all(**UNHURRIED)
    worker, codes, ends = "worker", [], []
    async with deployment.tasks_client() as tasks_client:
        for n, number in enumerate(SIGNALS, 1):
            llm.may_answer.clear()
            accepted = [await tasks_client.create() for _ in range(REQUESTS)]
            await llm.was_asked(n * REQUESTS)
            # The callbacks are another's: whoever stops takes no more jobs.
            await deployment.start_worker(f"heir {n}", **UNHURRIED)
            deployment.tell(worker, number)
            await deployment.says(worker, "stopping")
            llm.may_answer.set()
            codes.append(await deployment.exit_code(worker))
            ends += [await tasks_client.ended(request) for request in accepted]
            worker = f"heir {n}"
        made = await tasks_client.made()

    assert [0] * len(SIGNALS) == codes
    assert {"created"} == {told["status"] for told in ends}
    assert sorted(told["task"]["id"] for told in ends) == sorted(t["id"] for t in made)
    assert len(ends) == llm.calls, "no model was asked twice"
    for history in await histories(migrated_url):
        assert ["queued", "started", "succeeded"] == kinds(history)
    assert (0, 42 * len(ends)) == await balance(migrated_url)


async def test_what_does_not_end_in_time_runs_elsewhere_at_once(
    deployment, llm, migrated_url, record_property
):
    hasty = {**UNHURRIED, "BACKBURNER_GRACE_SECONDS": "0.2"}
    await deployment.start_all(**hasty)
    async with deployment.tasks_client() as tasks_client:
        accepted = [await tasks_client.create() for _ in range(REQUESTS)]
        await llm.was_asked(REQUESTS)
        await deployment.start_worker("heir", **hasty)
        code = await deployment.stop("worker")
        await llm.was_asked(2 * REQUESTS)
        llm.may_answer.set()
        ends = [await tasks_client.ended(request) for request in accepted]
        made = await tasks_client.made()
    found = await histories(migrated_url)

    gaps = [history[3][1] - history[2][1] for history in found]
    record_property("told", f"tasks, handed back → claimed elsewhere: {gaps} ms")
    assert 1 == code
    for history in found:
        _, first, back, second, _ = [data for *_, data in history]
        kept = ["queued", "started", "queued", "started", "succeeded"]
        assert kept == kinds(history), "no lease ran out"
        assert "handed_back" == back["outcome"]
        assert first["worker"] != second["worker"]
        assert (1, 1) == (first["attempt"], second["attempt"]), "at no cost"
    assert {"created"} == {told["status"] for told in ends}
    assert sorted(told["task"]["id"] for told in ends) == sorted(t["id"] for t in made)
    assert (0, 42 * REQUESTS) == await balance(migrated_url)


async def test_a_worker_that_is_killed_hands_nothing_over(
    deployment, llm, migrated_url
):
    # Control: it is the hand-back, and nothing else, that has it run elsewhere.
    await deployment.start_all(**UNHURRIED)
    async with deployment.tasks_client() as tasks_client:
        lost = await tasks_client.create()
        await llm.was_asked()
        await deployment.start_worker("heir", **UNHURRIED)
        deployment.tell("worker", signal.SIGKILL)
        code = await deployment.exit_code("worker")
        llm.may_answer.set()
        later = await tasks_client.ended(await tasks_client.create())
        place = lost.headers["location"]
        left = (await tasks_client.client.get(place)).json()

    assert -signal.SIGKILL == code
    assert ("created", "running") == (later["status"], left["status"])
    assert [["queued", "started"], ["queued", "started", "succeeded"]] == [
        kinds(history) for history in await histories(migrated_url)
    ]
