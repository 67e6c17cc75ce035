"""The small client, against real servers that go away and come back."""

import signal
import subprocess
import sys

import pytest

from backburner.client import Client, ClientError

HEAVY = "['alembic', 'fastapi', 'sqlalchemy', 'uvicorn']"


@pytest.mark.parametrize("module", ["backburner.client", "backburner.cli"])
def test_asking_loads_neither_the_server_nor_the_database(module):
    program = f"import sys, {module}; print(sorted(sys.modules.keys() & {HEAVY}))"

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert "[]\n" == ended.stdout


def test_a_refusal_has_code_status_and_request_id(client):
    with pytest.raises(ClientError) as refusal:
        client.submit("demo.sleep", {"seconds": -1})

    assert ("INVALID_INPUT", 422) == (refusal.value.code, refusal.value.status)
    assert refusal.value.request_id
    assert "input.seconds" in str(refusal.value)


def test_no_answer_has_no_status():
    with (
        Client("http://127.0.0.1:1") as client,
        pytest.raises(ClientError) as refusal,
    ):
        client.get("job_1")

    assert ("UNREACHABLE", None) == (refusal.value.code, refusal.value.status)


def test_wait_gives_the_job_as_it_is_when_the_time_is_over(client):
    job = client.submit("demo.echo", {}, run_at="2100-01-31T09:00:00Z")

    waited = client.wait(job["id"], timeout=0)

    assert "scheduled" == waited["state"]


def test_jobs_come_page_by_page(client):
    ids = [client.submit("demo.echo", {}, tags=["paged"])["id"] for _ in range(5)]

    found = [job["id"] for job in client.jobs(tag="paged", limit=2)]

    assert ids[::-1] == found


def test_a_reader_that_is_cut_off_sees_every_event_once(serve, start, gate):
    server = serve("--no-worker", "--app", "gated:app")
    start("worker", "--app", "gated:app")
    with Client(server.url) as client:
        job = client.submit("gated", {})
        following = client.events(job["id"])
        seen = [next(following), next(following)]
        server.told(signal.SIGKILL).exit_code()
        serve("--no-worker", "--app", "gated:app", "--port", server.port)
        gate.reached()
        gate.opened()
        seen += following

    assert [1, 2, 3] == [event["n"] for event in seen]
    assert "job.succeeded" == seen[-1]["type"]


def test_a_wait_outlives_its_server(serve, start, gate):
    server = serve("--no-worker", "--app", "gated:app")
    start("worker", "--app", "gated:app")
    with Client(server.url) as client:
        job = client.submit("gated", {"a": 1})
        following = client.follow(job["id"], every=1)
        before = next(following)["state"]
        server.told(signal.SIGKILL).exit_code()
        serve("--no-worker", "--app", "gated:app", "--port", server.port)
        gate.reached()
        gate.opened()
        *_, ended = following

    assert before in {"queued", "running"}
    assert ("succeeded", {"a": 1}) == (ended["state"], ended["output"])
