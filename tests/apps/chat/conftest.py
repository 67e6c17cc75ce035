"""`chat` in one process or in several, over real databases."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.util import await_only

from backburner import Ticket
from backburner.domain.jobs.job import Submitted
from backburner.engine.submit.submission import LOCAL
from backburner_apps.chat import app as chat_app
from backburner_apps.chat import generation, personalities
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.chat.shapes import GenerateRequest, NewPersonality
from tests.apps.process import Process, served, take, until
from tests.databases import each_store

store_url = each_store
ADA = NewPersonality(id="ada", name="Ada", system_prompt="You are Ada.")
DATA = "data:audio/ogg;base64,T2dnUw=="
HELD_UP = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND wait_event_type = 'Lock' AND query LIKE '%chat%'"
)
PICTURE = "data:image/png;base64,iVBORw0KGgo="


def body(message="hello", **more):
    """Return a request as a client sends it."""
    usual = {"personalityId": "ada", "channelId": "c", "userId": "1"}
    return {**usual, "userMessage": message, **more}


def asked(message="hello", **more):
    return GenerateRequest.model_validate(body(message, **more))


def ticket(chat, job_id):
    """Return the way to a job's result."""
    return Ticket(Submitted(job_id, "queued"), chat.backburner.engine)


@dataclass
class Chat(Process):
    """A running process with `chat`, and a client of it."""

    async def generate(self, message="hello", params="", headers=None, **more):
        return await self.client.post(
            f"/ai/generate{params}", json=body(message, **more), headers=headers
        )

    async def make(self, new=ADA, tenant=LOCAL.tenant):
        await self.backburner.transact(lambda tx: personalities.create(tx, tenant, new))


class Halt:
    """A place where the first transaction that comes stops; on PostgreSQL only."""

    def __init__(self):
        self._reached, self._go = asyncio.Event(), asyncio.Event()

    def _stop(self):
        if not self._reached.is_set():
            self._reached.set()
            await_only(self._go.wait())

    def before(self, function):
        """Return a function that stops before it does anything."""

        def halted(*args):
            self._stop()
            return function(*args)

        return halted

    def after(self, function):
        """Return a function that stops when it has done everything."""

        def halted(*args):
            answer = function(*args)
            self._stop()
            return answer

        return halted

    async def cross(self, chat, first, second):
        """
        Begin `second` while the transaction of `first` stops; return both answers.

        The transaction goes on when `second` has ended, or waits for a lock.
        """

        async def has_met():
            return two.done() or await chat.backburner.read(_held_up)

        async with asyncio.timeout(90):
            one = asyncio.ensure_future(first)
            await self._reached.wait()
            two = asyncio.ensure_future(second)
            await until(has_met)
            self._go.set()
            return await asyncio.gather(one, two)


def _held_up(view):
    return view.connection.execute(HELD_UP).scalar_one()


@pytest.fixture
def halt():
    """A place where a transaction stops, so that another one can overtake it."""
    return Halt()


@pytest.fixture
async def start(store_url):
    """Start processes over one database."""
    async with AsyncExitStack() as stack:

        def begin(**options: Any):
            return stack.enter_async_context(chatting(store_url, **options))

        yield begin


def chatting(store, **options):
    ours = [ChatSettings(**take(options, ChatSettings))]
    return served(store, [chat_app], ours, kind=Chat, **options)


@pytest.fixture
def one_minute(monkeypatch):
    """Have the minute of users' limits begin now, so that it does not end meanwhile."""

    def begin(chat):
        monkeypatch.setattr(generation, "MINUTE", chat.backburner.engine.now() + 59_000)

    return begin
