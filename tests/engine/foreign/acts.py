"""What the tests of foreign messages and letters do, as verbs."""

import asyncio
import json

import pytest
from pydantic import BaseModel, field_validator

from backburner import Context, PermanentError, capability
from backburner.domain.jobs.job import JobState
from backburner.ports.store.maintenance import JobFilter
from backburner.settings import Settings
from backburner.testing.broker.acts import pause

PATIENCE = 180.0
ANY_STORE = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
"""For what no store has a part in: one is enough."""
USUAL = {
    "grace_seconds": 0,
    "webhook_secret": "s" * 32,
    "body_limit": 200_000,
}
SAID = frozenset(Settings.model_fields) - {"queues"}


class Name(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def _explodes(cls, name: str) -> str:
        if name == "boom":
            raise RuntimeError(name)
        return name


@capability("greet", queue="greetings")
async def greet(_ctx: Context, value: Name) -> str:
    return f"Hello, {value.name}!"


class Fickle:
    """A capability that fails until it is mended."""

    def __init__(self):
        self.is_mended = False

    def capability(self):
        @capability("fickle", queue="fickle", max_attempts=1)
        async def fickle(_ctx: Context, value: str) -> str:
            if not self.is_mended:
                raise PermanentError(f"{value} is broken", code="BROKEN")
            return value

        return fickle


def a_request(**fields):
    usual = {"capability": "greet", "input": {"name": "Ada"}}
    return json.dumps(usual | fields).encode()


async def until(condition):
    """Wait until something holds; each look lets others go on."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await condition()):
            await pause()
    return found


async def jobs_of(backburner, owner=None):
    where = JobFilter(owner=owner)
    listed = await backburner.engine.store.jobs(where, before=None, limit=99)
    return await backburner.engine.store.find([job.id for job in listed])


async def ended(backburner, count=1):
    """Return all jobs when so many have ended."""

    async def all_ended():
        jobs = await jobs_of(backburner)
        is_over = len(jobs) >= count and all(job.state.is_final for job in jobs)
        return jobs if is_over else None

    return await until(all_ended)


async def letters(server, queue, count=1):
    """Return a queue's dead letters when there are so many."""

    async def there():
        dead = server.dead[queue]
        return dead if len(dead) >= count else None

    return [json.loads(letter.body) for letter in await until(there)]


async def emptied(server, *queues):
    async def empty():
        return not any(server.depth(queue) for queue in queues)

    await until(empty)


async def fail(backburner, value):
    ticket = await backburner.submit("fickle", value)
    job = await ticket.wait(PATIENCE)
    assert JobState.FAILED == job.state
    return job
