"""The ES module on a page of another origin, by a stream token, over a restart."""

import json

import httpx2
import pytest

from backburner.client import Client
from tests.chromium import a_page
from tests.cli.conftest import Server

LINKS = "a secret for links that only this test knows"
FOLLOW = """(async () => {
  const {useFileProcessingEvents} =
    await import(%(module)s)
  window.seen = []
  window.connections = []
  window.events = useFileProcessingEvents(%(batch)s, {
    url: %(url)s, token: async () => %(token)s,
    onEvent: event => {
      seen.push(event)
      document.body.dataset.seen = seen.map(({type}) => type).join(' ')
    },
    onConnection: state => {
      connections.push(state)
      document.body.dataset.connection = state
    },
  })
  events.subscribe(() => {})
})()"""


@pytest.fixture
def serve(tmp_path):
    """Start a server of documents, again on the same port if one is given."""
    started = []

    def begin(origin, port="0"):
        env = {
            "BACKBURNER_APPS": "documents",
            "BACKBURNER_CORS_ORIGINS": origin,
            "BACKBURNER_LINK_SECRET": LINKS,
        }
        started.append(Server("--port", port, cwd=tmp_path, env=env))
        return started[-1]

    yield begin
    for server in started:
        server.end()


def upload(url, batch_id, name):
    """Upload a small text by HTTP."""
    content = f"The text of {name}.".encode()
    with Client(url) as client:
        batch = f"/api/v2/uploads/batches/{batch_id}"
        size = len(content)
        asked = {"fileName": name, "fileSize": size}
        signed = client.call("POST", f"{batch}/upload-urls", asked)
        httpx2.put(signed["uploadUrl"], content=content, trust_env=False)
        file_id = signed["fileId"]
        client.call("POST", f"{batch}/files/{file_id}/confirm", {"size": size})
    return file_id


async def test_a_page_of_another_origin_follows_a_batch_over_a_restart(serve, tab):
    async with a_page() as page:
        server = serve(page.origin)
        with Client(server.url) as client:
            made = client.call("POST", "/api/v2/uploads/batches", {"fileCount": 2})
            batch = made["batchId"]
            topic = {"topic": f"batch:{batch}", "seconds": 600}
            token = client.call("POST", "/v1/stream-tokens", topic)["token"]
        module = f"{server.url}/apps/documents/file-processing-events.js"
        told = {"module": module, "batch": batch, "url": server.url, "token": token}
        await tab.open(f"{page.origin}/")
        await tab.evaluate(FOLLOW % {k: json.dumps(v) for k, v in told.items()})
        await tab.until("document.body.dataset.connection === 'open'")
        first = upload(server.url, batch, "one.txt")
        await tab.until("seen.some(({data}) => data.to === 'ready')")
        server.end()
        await tab.until("document.body.dataset.connection === 'waiting'")
        again = serve(page.origin, server.port)
        second = upload(again.url, batch, "two.txt")
        await tab.until("events.getSnapshot().summary")
        seen = await tab.evaluate("seen")
        state = await tab.evaluate("events.getSnapshot()")

    numbers = [event["seq"] for event in seen]
    assert sorted({*numbers}) == numbers, "each event once, in order"
    changes = [e["data"] for e in seen if e["type"] == "file:status-changed"]
    expected = ["uploaded", "queued", "extracting", "chunking", "embedding", "ready"]
    for file in (first, second):
        assert expected == [c["to"] for c in changes if c["fileId"] == file]
    assert {"total": 2, "ready": 2, "failed": 0} == state["summary"]
    notices = [notice["text"] for notice in state["notices"]]
    assert ["Batch completed: 2/2 files processed"] == notices
