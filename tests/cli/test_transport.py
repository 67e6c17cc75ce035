"""`serve`, `worker` and `demo` with a message broker between them."""

import httpx2

from backburner.client import Client


def the_address(process):
    return process.says("ready at").rpartition(" ")[2]


def published(url):
    """Return how many messages the server process put on the broker."""
    lines = httpx2.get(f"{url}/metrics").text.splitlines()
    told = [
        line
        for line in lines
        if line.startswith("backburner_broker_messages_published")
    ]
    return sum(float(line.rpartition(" ")[2]) for line in told if "_total{" in line)


def test_a_server_and_a_worker_share_a_broker(start, redis_database):
    env = {"BACKBURNER_TRANSPORT": redis_database, "BACKBURNER_POLL_SECONDS": "30"}
    server = start("serve", "--dev", "--port", "0", "--no-worker", **env)
    url = the_address(server)
    start("worker", "--dev", **env).says("runs jobs of these queues")

    with Client(url) as client:
        ended = client.submit("demo.echo", {"a": 1}).result(timeout=60)
    ready = httpx2.get(f"{url}/readyz").json()

    assert {"a": 1} == ended
    assert {"status": "ok"} == ready
    assert published(url) >= 1
    assert 'backburner_broker_up{transport="redis"} 1.0' in (
        httpx2.get(f"{url}/metrics").text
    )


def test_the_demo_runs_by_a_broker(start, redis_database):
    demo = start("demo", "--port", "0", BACKBURNER_TRANSPORT=redis_database)
    url = the_address(demo)
    demo.says("Press Ctrl-C to stop")

    with Client(url) as client:
        ended = client.submit("demo.echo", {"a": 1}).result(timeout=60)

    assert {"a": 1} == ended
    assert published(url) >= 1
