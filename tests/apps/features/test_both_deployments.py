"""
The same feature files in every deployment, unchanged.

A deployment is a fixture `deployed_on_NAME` with the verbs of `Deployed`; its name is
listed in `DEPLOYMENTS`. The answers must be what the feature itself says, run here
without any deployment at all.
"""

import asyncio
import hashlib
import inspect
import shutil
from pathlib import Path
from typing import Any, Protocol

import httpx2
import pytest

from backburner_apps.features.catalogue import features as all_features
from tests import homes
from tests.apps.features.aws.cloud import ADA, Cloud, fetched
from tests.apps.features.conftest import CV, POSTING
from tests.apps.features.memory import Memory, in_memory

DEPLOYMENTS = ["backburner", "aws"]
LONG_CV = CV + "\nI have also written a lot of prose." * 9_000
"""Over 256 KiB."""


class Deployed(Protocol):
    """A running deployment."""

    async def submit(self, feature: str, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the answer's body."""
        ...

    async def upload(self, feature: str, content: bytes) -> str:
        """Send a file and return its `user_cv_key`."""
        ...

    async def ended(self, feature: str, job_id: str) -> dict[str, Any]:
        """Have the job run and return its status."""
        ...

    async def fetch(self, url: str) -> Any:
        """Return the JSON behind a result's URL, asked for without credentials."""
        ...


class OnBackburner:
    """A server, a worker and a database."""

    def __init__(self, features):
        self._features = features

    async def submit(self, feature, request):
        answer = await self._features.client.post(
            f"/api/{feature}/submit", json=request
        )
        assert 202 == answer.status_code, answer.text
        return answer.json()

    async def upload(self, feature, content):
        return await self._features.upload(content, feature)

    async def ended(self, feature, job_id):
        return await self._features.ended(job_id, feature)

    async def fetch(self, url):
        return (await self._features.client.get(url)).json()


class OnAws:
    """The functions, with table, queue and bucket as moto plays them."""

    def __init__(self, cloud):
        self._cloud = cloud

    async def submit(self, feature, request):
        answer = await asyncio.to_thread(self._cloud.submit, request, ADA, feature)
        assert 202 == answer.status, answer.body
        return answer.body

    async def upload(self, feature, content):
        asked = {"size": len(content)}
        offered = await asyncio.to_thread(self._cloud.upload, asked, ADA, feature)
        url = offered.body["upload_url"]
        sent = await asyncio.to_thread(httpx2.put, url, content=content)
        assert sent.is_success
        return offered.body["user_cv_key"]

    async def ended(self, feature, job_id):
        await asyncio.to_thread(self._cloud.work)
        shown = await asyncio.to_thread(self._cloud.status, job_id, ADA, feature)
        return shown.body

    async def fetch(self, url):
        return (await asyncio.to_thread(fetched, url)).json()


@pytest.fixture
def deployed_on_aws(monkeypatch, s3_endpoint):
    cloud = Cloud(monkeypatch, s3_endpoint)
    cloud.make_table()
    return OnAws(cloud)


@pytest.fixture
def store_url(request, tmp_path, template):
    """One database: which one makes no difference to a feature's file."""
    if homes.STORES[0] == "postgres":
        return request.getfixturevalue("migrated_url")
    shutil.copy(template, tmp_path)
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def deployed_on_backburner(start):
    return OnBackburner(await start())


@pytest.fixture(params=DEPLOYMENTS)
def deployed(request) -> Deployed:
    return request.getfixturevalue(f"deployed_on_{request.param}")


def digest(feature):
    """Return what a feature's file holds, and how many lines that are."""
    text = Path(inspect.getfile(all_features()[feature])).read_bytes()
    return hashlib.sha256(text).hexdigest(), len(text.splitlines())


async def answered_alone(feature, request):
    """Return what a feature answers without any deployment."""
    memory = Memory()
    handler = all_features()[feature](in_memory(memory))
    made = (await handler.submit("1", request, feature)).unwrap()
    await handler.execute(made.job_id)
    return memory.result(made.job_id)


@pytest.mark.one_store
@pytest.mark.parametrize("cv", ["text", "long text", "file"])
@pytest.mark.parametrize("feature", all_features())
async def test_the_same_feature_file_runs_in_every_deployment(deployed, feature, cv):
    before, lines = digest(feature)
    text = LONG_CV if cv == "long text" else CV
    request = {"user_cv": text, "job_posting": POSTING}
    expected = await answered_alone(feature, request)
    if cv == "file":
        key = await deployed.upload(feature, text.encode())
        request = {"user_cv_key": key, "job_posting": POSTING}

    receipt = await deployed.submit(feature, request)
    shown = await deployed.ended(feature, receipt["job_id"])
    result = await deployed.fetch(shown["result_url"])

    assert "PENDING" == receipt["status"]
    assert {"job_id", "status", "created_at"} == set(receipt)
    assert ("COMPLETED", receipt["job_id"]) == (shown["status"], shown["job_id"])
    assert {"created_at", "started_at", "completed_at"} <= set(shown)
    assert expected == result
    assert (before, True) == (digest(feature)[0], lines < 100)
