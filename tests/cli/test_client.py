"""The client that blocks, against real servers that go away and come back."""

import signal
import subprocess
import sys

import pytest

from backburner.client import (
    Client,
    ClientError,
    JobFailed,
    NotFound,
    NotYet,
    Unavailable,
)

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


def test_a_ticket_leads_to_the_result(client):
    ticket = client.submit("demo.echo", {"a": 1})

    result = ticket.result(timeout=60)

    assert {"a": 1} == result
    assert "succeeded" == ticket.state
    assert ticket.job == client.ticket(ticket.id).refresh()


def test_a_ticket_of_a_failure_raises_it(client):
    ticket = client.submit("demo.fail", {"error": "permanent"})

    with pytest.raises(JobFailed, match="failed on purpose") as raised:
        ticket.result()

    assert ("PERMANENT", ticket.id) == (raised.value.code, raised.value.job["id"])
    assert 1 == ticket.retry()["generation"]


def test_a_ticket_before_its_time_says_so_and_is_cancelled(client):
    ticket = client.submit("demo.echo", {}, run_at="2100-01-31T09:00:00Z")

    with pytest.raises(NotYet, match="is scheduled and continues"):
        ticket.result(timeout=0)
    cancelled = ticket.cancel()

    assert ("cancelled", cancelled) == (ticket.state, ticket.job)
    assert "job.cancelled" == [event["type"] for event in ticket.stream()][-1]


def test_a_submit_whose_answer_is_lost_is_repeated_and_is_one_job(client, cutter):
    with Client(cutter.url) as through:
        ticket = through.submit("demo.echo", {}, tags=["lost"])

    found = [job["id"] for job in client.jobs(tag="lost")]

    assert 2 == len(cutter.requests)
    assert cutter.requests[0] == cutter.requests[1]
    assert [ticket.id] == found


def test_a_submit_that_must_not_be_repeated_is_not(client, cutter):
    with Client(cutter.url) as through, pytest.raises(Unavailable):
        through.submit("demo.echo", {}, tags=["lost once"], is_repeatable=False)

    assert 1 == len(cutter.requests)
    assert b"idempotency-key" not in cutter.requests[0].lower()
    assert 1 == len(list(client.jobs(tag="lost once")))


def test_dead_letters_come_by_cause_and_one_by_one(client):
    dead = client.submit("demo.fail", {"error": "permanent"}, tags=["cause"]).wait()
    group = next(g for g in client.failures() if g["capability"] == "demo.fail")

    alike = [job["id"] for job in client.dead_letters(group["fingerprint"])]
    every = [job["id"] for job in client.dead_letters()]

    assert dead["id"] in alike
    assert dead["id"] in every


def test_everything_is_watched_from_a_place_on(client):
    ticket = client.submit("demo.echo", {})
    first, *_ = ticket.stream()

    told = next(client.all_events(after=first["seq"] - 1))

    assert first == told
    assert ticket.id == told["job_id"]


@pytest.mark.parametrize("key", ["schlüssel", "two\nlines"])
def test_a_key_that_cannot_be_sent_is_refused_before_it_is(key):
    with pytest.raises(ClientError, match="the API key has invalid characters"):
        Client("http://127.0.0.1:1", api_key=key)


def test_the_key_is_sent_as_a_bearer(cutter, monkeypatch):
    monkeypatch.setenv("BACKBURNER_API_KEY", "from-the-environment")
    with Client(cutter.url) as first, Client(cutter.url, api_key="given") as second:
        list(first.jobs(tag="none"))
        list(second.jobs(tag="none"))

    assert b"authorization: bearer from-the-environment" in cutter.requests[0].lower()
    assert b"authorization: bearer given" in cutter.requests[-1].lower()


def test_a_route_of_an_application_is_called_by_its_path(client):
    body = {"capability": "demo.echo", "input": {}, "tags": ["called"]}
    made = client.call("POST", "/v1/jobs", body)
    found = client.call("GET", "/v1/jobs", tag="called", limit=5, state=None)

    assert [made["id"]] == [job["id"] for job in found["items"]]
    with pytest.raises(NotFound):
        client.call("GET", "/v1/nothing")
