"""Signals: in-flight jobs may finish, what cannot is handed back, two mean at once."""

import signal

import pytest

from backburner.client import Client


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2])
def test_an_idle_process_leaves_with_0(serve, start, number):
    worker = start("worker", "--dev")
    worker.says("Backburner runs jobs of these queues: ")

    assert 0 == worker.told(number).exit_code()
    assert 0 == serve().told(number).exit_code()


@pytest.mark.executed
def test_a_job_in_flight_may_finish(serve, start, gate):
    server = serve("--no-worker", "--app", "gated:app")
    worker = start("worker", "--app", "gated:app")
    with Client(server.url) as client:
        job = client.submit("gated", {"a": 1})
        gate.reached()
        told = worker.told(signal.SIGTERM).says("Waiting up to ")
        gate.opened()
        code = worker.exit_code()
        ended = client.get(job["id"])

    assert told.endswith(
        "30 s for a running job to finish; a second signal (Ctrl-C) stops at once"
    )
    assert 0 == code
    assert ("succeeded", {"a": 1}) == (ended["state"], ended["output"])


def test_whoever_waits_for_a_job_in_flight_gets_its_result(serve, gate):
    server = serve("--app", "gated:app")
    with Client(server.url) as client:
        job = client.submit("gated", {"a": 1})
        gate.reached()
        following = client.events(job["id"])
        next(following)
        server.told(signal.SIGTERM).says("stopping")
        gate.opened()
        types = [next(following)["type"] for _ in range(2)]

    assert ["job.started", "job.succeeded"] == types
    assert 0 == server.exit_code()


def test_a_job_longer_than_the_grace_is_handed_back_and_costs_no_attempt(
    serve, start, gate
):
    server = serve("--no-worker", "--app", "gated:app")
    first = start("worker", "--app", "gated:app", BACKBURNER_GRACE_SECONDS="0.1")
    with Client(server.url) as client:
        job = client.submit("gated", {"a": 1})
        gate.reached()
        code = first.told(signal.SIGTERM).exit_code()
        gate.opened()
        handed_back = client.get(job["id"])

        start("worker", "--app", "gated:app")
        gate.reached()
        gate.opened()
        ended = client.wait(job["id"])

    assert 1 == code
    assert ("queued", 0, 0) == tuple(
        handed_back[name] for name in ("state", "attempt", "crashes")
    )
    assert ("succeeded", 1) == (ended["state"], ended["attempt"])


@pytest.mark.executed
def test_a_second_signal_ends_it_at_once(serve, gate):
    server = serve("--app", "gated:app")
    with Client(server.url) as client:
        client.submit("gated", {})
        gate.reached()
        server.told(signal.SIGTERM).says("stopping")

        code = server.told(signal.SIGINT).exit_code()

    assert 130 == code


@pytest.fixture
def blocked(serve, start):
    """A worker whose event loop is blocked by a job for an hour."""
    server = serve("--no-worker")
    worker = start("worker", "--dev")
    with Client(server.url) as client:
        job = client.submit("demo.block", {"seconds": 3600})
        following = client.events(job["id"])
        types = [next(following)["type"] for _ in range(2)]

    assert ["job.queued", "job.started"] == types
    return worker


def test_a_blocked_loop_cannot_hold_off_the_second_signal(blocked):
    assert 130 == blocked.told(signal.SIGTERM).told(signal.SIGINT).exit_code()


def test_nor_can_it_when_other_threads_take_the_signals(blocked):
    told = blocked.told_aside(signal.SIGTERM).told_aside(signal.SIGINT)

    assert 130 == told.exit_code()
