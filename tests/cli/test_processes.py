"""Several processes over one file."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from backburner.client import Client

QUICK = {"BACKBURNER_BEAT_SECONDS": "0.2", "BACKBURNER_LEASE_SECONDS": "1"}


@pytest.mark.executed
def test_two_servers_and_two_workers_share_a_file(serve, start):
    servers = [serve("--no-worker"), serve("--no-worker")]
    workers = [start("worker", "--dev"), start("worker", "--dev")]
    with Client(servers[0].url) as one, Client(servers[1].url) as two:
        with ThreadPoolExecutor(8) as pool:
            submitted = list(
                pool.map(
                    lambda n: (one, two)[n % 2].submit("demo.echo", {"n": n}), range(40)
                )
            )
        ended = [two.wait(job["id"]) for job in submitted]

    assert ["succeeded"] * 40 == [job["state"] for job in ended]
    assert [{"n": n} for n in range(40)] == [job["output"] for job in ended]
    assert [1] * 40 == [job["attempt"] for job in ended]
    assert [None, None] == [worker.popen.poll() for worker in workers]


@pytest.mark.parametrize(
    ("fault", "crashes"),
    [
        ("worker.claimed", 1),
        ("settle.before_commit", 1),
        ("settle.after_commit", 0),
    ],
)
def test_what_a_killed_worker_held_is_done_by_another(serve, start, fault, crashes):
    server = serve("--no-worker", **QUICK)
    doomed = start("worker", "--dev", BACKBURNER_FAULT=fault, **QUICK)
    with Client(server.url) as client:
        job = client.submit("demo.echo", {"a": 1})
        code = doomed.exit_code()
        start("worker", "--dev", **QUICK)
        ended = client.wait(job["id"])

    assert 137 == code
    assert ("succeeded", {"a": 1}) == (ended["state"], ended["output"])
    assert crashes == ended["crashes"]


def test_a_fault_strikes_at_the_nth_hit(serve):
    server = serve(BACKBURNER_FAULT="submit.after_commit:3")
    with Client(server.url) as client:
        first = [client.submit("demo.echo", {}) for _ in range(2)]
        code_before = server.popen.poll()
        with pytest.raises(Exception, match="cannot be reached"):
            client.submit("demo.echo", {})

    assert 2 == len(first)
    assert code_before is None
    assert 137 == server.exit_code()


@pytest.mark.usefixtures("gate")
def test_a_worker_runs_jobs_of_a_queue_that_none_of_its_capabilities_uses(serve, start):
    apps = ("--app", "backburner.demo:app")
    server = serve("--no-worker", *apps, "--app", "gated:app")
    worker = start("worker", "--dev", *apps, "--queues", "demo,default")
    with Client(server.url) as client:
        job = client.submit("demo.echo", {"a": 1}, queue="default")
        ended = client.wait(job["id"])
    warning = worker.says("no capability of this worker uses the queue")

    assert "succeeded" == ended["state"]
    assert "default" in warning


@pytest.mark.usefixtures("gate")
def test_a_worker_takes_from_the_queues_it_is_told(serve, start):
    apps = ("--app", "gated:app", "--app", "backburner.demo:app")
    server = serve("--no-worker", *apps)
    start("worker", "--dev", *apps, "--queues", "default")
    with Client(server.url) as client:
        other = client.submit("demo.echo", {})
        taken = client.wait(client.submit("demo.echo", {}, queue="default")["id"])
        waiting = client.get(other["id"])

    assert ("succeeded", "queued") == (taken["state"], waiting["state"])
