"""`features` in one process or in several, over real databases."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from backburner import Owner, wiring
from backburner.clock import StoreClock
from backburner.engine.submit.submission import LOCAL
from backburner_apps.features import app as features_app
from backburner_apps.features.settings import FeaturesSettings
from tests.apps.process import Process, served, take
from tests.databases import each_store

store_url = each_store
CV = "Ada Lovelace\nFive years of Python and PostgreSQL at Acme.\nLed a team of three."
POSTING = "Backend engineer. We need Python, Kubernetes and German."
FINAL = {"COMPLETED", "FAILED"}


def body(posting=POSTING, **more):
    """Return a request as a client sends it."""
    return {"user_cv": CV, "job_posting": posting, **more}


@dataclass
class Features(Process):
    """A running process with `features`, and a client of it."""

    async def submit(self, feature="gap-analysis", headers=None, **more):
        """Submit a request and return its receipt."""
        answer = await self.client.post(
            f"/api/{feature}/submit", json=body(**more), headers=headers
        )
        assert 202 == answer.status_code, answer.text
        return answer.json()

    async def status(self, job_id, feature="gap-analysis", headers=None):
        """Return the answer to a poll."""
        path = f"/api/{feature}/status/{job_id}"
        return await self.client.get(path, headers=headers)

    async def ended(self, job_id, feature="gap-analysis"):
        """Return the job as its user sees it when it has ended."""
        await self.backburner.engine.wait(f"job_{job_id}", LOCAL, timeout=60)
        shown = (await self.status(job_id, feature)).json()
        assert shown["status"] in FINAL, shown
        return shown

    async def job(self, job_id, owner=LOCAL):
        """Return the engine's job."""
        return await self.backburner.find(f"job_{job_id}", owner)

    async def blobs(self, owner=LOCAL):
        """Return what the application keeps for a user."""
        return await self.backburner.blobs("features", owner).list()

    async def upload(self, content, feature="gap-analysis", **more):
        """Send a file; return the key to name it by."""
        asked = {"size": len(content), **more}
        offered = await self.client.post(f"/api/{feature}/uploads", json=asked)
        assert 201 == offered.status_code, offered.text
        told = offered.json()
        sent = await self.client.put(
            told["upload_url"], content=content, headers=told["headers"]
        )
        assert 200 == sent.status_code, sent.text
        return told["user_cv_key"]


@pytest.fixture
async def start(store_url, tmp_path):
    """Start processes over one database."""
    async with AsyncExitStack() as stack:

        def begin(**options: Any):
            options.setdefault("blobs", f"file://{tmp_path}/blobs")
            return stack.enter_async_context(serving(store_url, **options))

        yield begin


def serving(store, **options):
    """Run a server, and a worker in it, with the application."""
    ours = [FeaturesSettings(**take(options, FeaturesSettings))]
    options = {"link_secret": "l" * 32} | options
    return served(store, [features_app], ours, kind=Features, **options)


@pytest.fixture
def later(monkeypatch):
    """Move the clock of processes that are started after this, by a span."""

    class Moved(StoreClock):
        ahead = 0

        def now(self):
            return super().now() + Moved.ahead

        async def follow(self, read):
            return await super().follow(read) + Moved.ahead

    monkeypatch.setattr(wiring, "StoreClock", Moved)

    def move(span: timedelta):
        Moved.ahead += span // timedelta(milliseconds=1)

    return move


ANN, BOB = Owner("default", "ann"), Owner("default", "bob")
