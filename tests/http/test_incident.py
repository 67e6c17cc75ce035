"""
A complete incident over HTTP: a provider fails, and one of two causes is fixed.

5,000 jobs become dead letters. A staged retry of each cause is asked for: the one that
persists stops by itself after its first stage, the one that is fixed is cleared.
"""

import asyncio
from typing import Any

import pytest

from backburner import PermanentError, RetryPolicy, capability
from backburner.domain.jobs.job import JobState
from backburner.engine.submit.submission import Options
from backburner.ports.store.maintenance import JobFilter
from backburner.testing.broker.acts import pause
from tests import homes

pytestmark = pytest.mark.chaos

JOBS = 5_000
POISONED = 1_000
SUBMITTED_AT_ONCE = 500
ANY = Options()
UNFINISHED = JobFilter(
    states=frozenset({JobState.QUEUED, JobState.RUNNING, JobState.SCHEDULED})
)

provider = {"is_down": True}
"""Whether the provider of `incident.call` fails."""


@capability("incident.call", queue="demo", retry=RetryPolicy(max_attempts=1))
async def call(_ctx, value: dict[str, Any]) -> str:
    if value.get("poison"):
        raise PermanentError("the input cannot be read", code="BAD_INPUT")
    if provider["is_down"]:
        raise PermanentError("the provider does not answer", code="PROVIDER_DOWN")
    return "done"


async def causes(server):
    """Return how many dead letters each cause has, and its fingerprint."""
    groups = (await server.client.get("/v1/dead-letters")).json()["items"]
    return {group["code"]: (group["count"], group["fingerprint"]) for group in groups}


async def retried(server, fingerprint):
    """Ask for a staged retry of a cause; return what it came to."""
    body = {
        "action": "retry",
        "staged": True,
        "where": {"state": "failed", "fingerprint": fingerprint},
    }
    asked = (await server.client.post("/v1/jobs/bulk", json=body)).json()
    while True:
        job = await server.ended(asked)
        if job["state"] not in {"queued", "running", "scheduled"}:
            assert "succeeded" == job["state"], job
            return job["output"]


@pytest.mark.parametrize("store_url", homes.STORES, indirect=True)
async def test_the_staged_retry_stops_for_what_persists_and_clears_what_is_fixed(
    serve,
):
    provider["is_down"] = True
    server = await serve(capabilities=[call])
    engine = server.backburner.engine
    for first in range(0, JOBS, SUBMITTED_AT_ONCE):
        numbers = range(first, first + SUBMITTED_AT_ONCE)
        wanted = [("incident.call", {"poison": n < POISONED}, ANY) for n in numbers]
        made = await engine.submit_many(wanted)
        for one in made:
            await engine.wait(one.id, timeout=300)

    before = await causes(server)
    provider["is_down"] = False
    persists = await retried(server, before["BAD_INPUT"][1])
    cleared = await retried(server, before["PROVIDER_DOWN"][1])
    async with asyncio.timeout(300):
        while await engine.store.count(UNFINISHED, most=1):
            await pause()
    counted = await server.client.get("/v1/jobs/count?state=failed")
    after = await causes(server)

    assert {"BAD_INPUT": POISONED, "PROVIDER_DOWN": JOBS - POISONED} == {
        code: count for code, (count, _) in before.items()
    }
    assert "1 of 1 failed again: the cause is not fixed" == persists["stopped"]
    assert 1 == persists["changed"]
    assert (None, JOBS - POISONED) == (cleared["stopped"], cleared["changed"])
    assert ["BAD_INPUT"] == list(after)
    assert POISONED == counted.json()["count"]
