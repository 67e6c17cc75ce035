"""
Experiments: a load, a fault, and when it is over the one auditor.

Each says of every invariant whether it held, in a line of JSON. The processes, their
client and its ledger are those of the fault tests.
"""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx2
import pytest
import sqlalchemy as sa
from breakable import effects

from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.transitions import Limits
from backburner.testing.proxy import Proxy
from tests.faults.conftest import (  # noqa: F401 - fixtures
    _eventually,
    _ticks,
    caller_of,
    cannot,
    client,
    fleet,
    gate,
    own_postgres,
    store_url,
)

INVARIANTS = ("I1", "I2", "I3", "I4", "I5", "I7")
"""What the auditor says of every experiment, whether it found something or not."""
MANY = Limits(crashes=1000)


class Experiment:
    """What one experiment found out."""

    def __init__(self, number, backend, seed, tell):
        self.seed = seed
        self._known = {"experiment": number, "backend": backend, "seed": seed}
        self._tell = tell
        self.broken = []

    def on(self, backend):
        """Say which store it is, where a test has one of its own."""
        self._known["backend"] = backend

    def found(self, invariant, held, **more):
        """Note whether something held that should."""
        line = {**self._known, "invariant": invariant, "held": bool(held), **more}
        self._tell(json.dumps(line))
        if not held:
            self.broken.append(line)

    async def judge(self, client, limits=MANY, leaves_out=()):
        """Have the auditor look at a store at rest, and every acknowledged job end."""
        acknowledged = len(client.ledger.acknowledged)
        breaches = await client.audit(limits)
        for invariant in sorted({*INVARIANTS, *(b.invariant for b in breaches)}):
            told = [b for b in breaches if b.invariant == invariant]
            if invariant not in leaves_out:
                self.found(
                    invariant, not told, jobs=acknowledged, breaches=_shown(told)
                )

    async def drain(self, client, within=60.0):
        """Wait for every acknowledged job, and note that all of them succeeded."""
        ended = await client.ended(client.ledger.acknowledged, within=within)
        left = [job.id for job in ended if job.state is not JobState.SUCCEEDED]
        self.found("all succeed", not left, jobs=len(ended), left=len(left))
        return ended


def _shown(breaches):
    return [f"{breach.job} {breach.told}" for breach in breaches[:3]]


@pytest.fixture
def experiment(request, tell):
    """What is found out here; fails at the end if something did not hold."""
    number, *_ = request.node.get_closest_marker("experiment").args
    home = getattr(request.node, "callspec", None)
    backend = home.params.get("store_url", "postgres") if home else "postgres"
    seed = request.config.getoption("chaos_seed")
    experiment = Experiment(number, backend, seed, tell)
    yield experiment
    assert [] == experiment.broken, "an invariant did not hold"


@pytest.fixture
def tell(request, record_property):
    """Write a line to the report."""
    report = request.config.getoption("chaos_report")

    def tell(line):
        if report == "-":
            record_property("told", line)
        elif report:
            with Path(report).open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    return tell


@pytest.fixture
async def proxy(fleet, experiment):
    """A network between this test's database and whoever is given its URL."""
    parts = urlsplit(fleet.url)
    async with Proxy(parts.hostname, parts.port, seed=experiment.seed) as proxy:
        name = f"{parts.username}@127.0.0.1:{proxy.port}"
        proxy.url = urlunsplit(parts._replace(netloc=name))
        yield proxy


@pytest.fixture
async def http():
    """Make clients of processes."""
    async with AsyncExitStack() as stack:

        async def make(process, within=60.0):
            return await stack.enter_async_context(
                httpx2.AsyncClient(
                    base_url=process.address, timeout=within, trust_env=False
                )
            )

        yield make


def library(name, package):
    """Find a library that stands between a process and the system."""
    found = next(Path("/usr/lib").glob(f"**/{name}"), None)
    if found is None:
        cannot(f"{name} is not there: apt-get install {package}")
    return str(found)


class Submitter:
    """Submits one after the other over HTTP, and keeps every answer."""

    def __init__(self, caller, ledger):
        self._caller = caller
        self._ledger = ledger
        self.statuses = []

    async def submit(self, times=1, size=0):
        """Submit so many jobs whose input is about so large."""
        value = {"seconds": 0.02, "ballast": "x" * size}
        for _ in range(times):
            answer = await self._caller.post(
                "/v1/jobs", json={"capability": "work", "input": value}
            )
            self.statuses.append(answer.status_code)
            if answer.status_code == 202:
                job = answer.json()["id"]
                self._ledger.acknowledged.append(job)
                self._ledger.effective.append(job)
        return self.statuses[-1]

    async def until(self, statuses, within=60.0, **given):
        """Submit until the answer is one of these."""
        async with asyncio.timeout(within):
            while await self.submit(**given) not in statuses:
                pass


@pytest.fixture
def submitter(http, client):
    """Make one that submits to a process."""

    async def make(process):
        return Submitter(await http(process), client.ledger)

    return make


async def finished(client):
    """Count the effects: one row for each job that is done."""
    return await client.store.transact(
        lambda tx: tx.connection.execute(
            sa.select(sa.func.count(effects.c.job))
        ).scalar()
    )
