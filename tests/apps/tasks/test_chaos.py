"""Three processes over a provider that fails by lot: npm's aimock, not ours."""

import asyncio
import json
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from backburner_apps.tasks import book
from backburner_apps.tasks.tables import tasks
from tests.apps.tasks.conftest import success, waiting
from tests.apps.tasks.deployment import balance
from tests.store.moving import a_store, write

pytestmark = pytest.mark.thorough

TASK = {"title": "Buy milk", "priority": "low", "subtasks": []}
REQUESTS = 20
MODES = {
    "drop": {"dropRate": 0.5},
    "malformed": {"malformedRate": 0.5},
    "disconnect": {"disconnectRate": 0.5},
    "always": {"dropRate": 1},
    "rateLimit": {"rateLimitRate": 0.4},
}
LIMITED = "rateLimit"
SETTINGS = {"BACKBURNER_AI_REQUESTS": "60000", "BACKBURNER_TASKS_TOKENS": "1000000"}
TROUBLES = {"AI_UNAVAILABLE", "AI_BAD_ANSWER"}


class Run(NamedTuple):
    """What became of the requests in one mode."""

    created: list[str]
    """The tasks that they were told of."""
    codes: set[str]
    """Why the others failed."""
    held: int
    settled: int
    faults: int
    """How often the provider failed them."""
    seconds: float


async def test_every_request_ends_once_and_with_its_tokens_free(
    deployment, aimock, migrated_url, record_property
):
    settings = {**SETTINGS, "OPENAI_BASE_URL": aimock.url}
    await deployment.start_all(**settings)
    async with deployment.tasks_client() as tasks_client:
        faults = [mode for mode in MODES if mode != LIMITED]
        runs = {
            mode: await run(tasks_client, aimock, mode, migrated_url) for mode in faults
        }
        # With its refusals aimock tells of 60 calls a minute, which are made by now.
        # Another key is another lane.
        await deployment.stop("worker")
        await deployment.start_worker("other", **settings, OPENAI_API_KEY="sk-other")
        runs[LIMITED] = await run(tasks_client, aimock, LIMITED, migrated_url)
        made = await tasks_client.made()

    for mode, found in runs.items():
        record_property("told", told(mode, found))
        assert found.faults > 0, mode
        assert found.codes <= TROUBLES, mode
        assert 0 == found.held, "nothing is held any more"
        assert (mode == "always") == (not found.created)
    created = [task for found in runs.values() for task in found.created]
    assert [] == doubled(created, made), "each once, none lost"
    settled = [0, *(run.settled for run in runs.values())]
    for (mode, found), before in zip(runs.items(), settled, strict=False):
        is_paid = found.settled > before
        assert is_paid == bool(found.created), f"{mode}: only tasks are paid for"
    assert REQUESTS == len(runs[LIMITED].created), "refusals fail nobody"


async def run(tasks_client, aimock, mode, url):
    """Have the provider fail in one way, and make some requests."""
    aimock.reset()
    aimock.answers(json.dumps(TASK))
    aimock.chaos(**MODES[mode])
    begun = asyncio.get_running_loop().time()
    accepted = [tasks_client.create(f"buy milk {mode} {n}") for n in range(REQUESTS)]
    ends = [
        await tasks_client.ended(request) for request in await asyncio.gather(*accepted)
    ]
    seconds = asyncio.get_running_loop().time() - begun
    faults = [e for e in aimock.requests() if e["response"].get("chaosAction")]
    return Run(
        [told["task"]["id"] for told in ends if told["status"] == "created"],
        {told["error"]["type"] for told in ends if told["status"] == "failed"},
        *await balance(url),
        len(faults),
        seconds,
    )


def told(mode, found):
    return (
        f"tasks over aimock, {mode} {next(iter(MODES[mode].values())):.0%}: "
        f"{len(found.created)} of {REQUESTS} tasks after {found.faults} faults, "
        f"{found.seconds:.1f} s"
    )


def doubled(created, made):
    """Return the tasks that no request was told of, and those that are not there."""
    return sorted({*created} ^ {task["id"] for task in made})


async def test_a_service_that_remembers_no_request_makes_a_task_twice(
    start, store_url, monkeypatch
):
    # Control: whoever calls back finds the request open, and its row takes two tasks.
    found = book._found

    def forgetful(tx, told):
        row = found(tx, told)
        return SimpleNamespace(**{**row._mapping, "state": book.OPEN})

    kept = {c for c in tasks.constraints if not isinstance(c, sa.UniqueConstraint)}
    monkeypatch.setattr(tasks, "constraints", kept)
    monkeypatch.setattr(book, "_found", forgetful)
    await write(a_store(store_url), tasks.create)  # the migration leaves it is
    services = await start(works=False)
    request_id, ai_id = await waiting(services)
    told = success(ai_id)
    answers = [await services.call_back(told, request_id=request_id) for _ in range(2)]
    made = await services.made()

    assert [201, 201] == [answer.status_code for answer in answers]
    first, second = (answer.json()["task"]["id"] for answer in answers)
    assert first != second
    assert [second] == doubled([first], made)
