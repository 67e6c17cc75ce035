"""A server and workers of `documents` as processes that can be killed."""

import os
import sys
from pathlib import Path

import httpx2

from backburner.testing.broker.acts import pause
from tests import warm
from tests.apps.documents.conftest import UPLOADS, md5

DROPPED = ("BACKBURNER_", "COVERAGE_")
"""Who is killed writes down no coverage; measuring it would only make it slow."""
TRANSPORT = "BACKBURNER_TRANSPORT"
APPS = Path(__file__).parents[2] / "faults" / "apps"
"""Where the broker is that runs of the tests share."""


class Fleet:
    """Processes over one database and one folder of contents."""

    def __init__(self, folder, url, port, **settings):
        self.folder, self.port = folder, port
        self.settings = {
            "BACKBURNER_STORE": url,
            "BACKBURNER_BLOBS": (folder / "blobs").as_uri(),
            "BACKBURNER_LINK_SECRET": "x" * 32,
            "BACKBURNER_BEAT_SECONDS": "0.5",
            "BACKBURNER_LEASE_SECONDS": "3",
            "BACKBURNER_POLL_SECONDS": "0.3",
            "BACKBURNER_GRACE_SECONDS": "1",
            "BACKBURNER_SLOTS": "8",
            "BACKBURNER_CRASH_LIMIT": "1000",
            **{
                f"BACKBURNER_DOCUMENTS_{k.upper()}": str(v) for k, v in settings.items()
            },
        }
        self.processes = []

    async def serve(self):
        port = str(self.port)
        arguments = "serve", "documents", "--dev", "--no-worker", "--port", port
        process = self._start(*arguments)
        while "Backburner is ready" not in process.path.read_text():
            assert process.poll() is None, process.path.read_text()
            await pause()

    def work(self):
        return self._start("worker", "--dev", "--app", "documents")

    def _start(self, *arguments):
        known = os.environ.items()  # noqa: TID251 - what our programs start in
        kept = {k: v for k, v in known if k == TRANSPORT or not k.startswith(DROPPED)}
        path = self.folder / f"{len(self.processes)}.log"
        with path.open("wb") as log:
            process = warm.Popen(
                [sys.executable, "-m", "backburner", *arguments],
                cwd=APPS,
                env=kept | self.settings,
                stdin=warm.DEVNULL,
                stdout=log,
                stderr=log,
            )
        process.path = path
        self.processes.append(process)
        return process

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


class Uploader:
    """A client that uploads files as programs of users do."""

    def __init__(self, port):
        url = f"http://127.0.0.1:{port}"
        self.http = httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False)

    async def batch(self, count):
        answer = await self.http.post(f"{UPLOADS}/batches", json={"fileCount": count})
        return answer.json()["batchId"]

    async def upload(self, batch_id, content, name):
        base = f"{UPLOADS}/batches/{batch_id}"
        body = {"fileName": name, "fileSize": len(content)}
        asked = (await self.http.post(f"{base}/upload-urls", json=body)).json()
        put = await self.http.put(asked["uploadUrl"], content=content)
        assert put.status_code == 200, put.text
        path = f"{base}/files/{asked['fileId']}/confirm"
        said = {"size": len(content), "md5": md5(content)}
        answer = await self.http.post(path, json=said)
        assert answer.status_code == 200, answer.text
        return asked["fileId"]

    async def summary(self, batch_id):
        return (await self.http.get(f"{UPLOADS}/batches/{batch_id}")).json()
