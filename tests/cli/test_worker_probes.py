"""`worker --metrics-port`: health and metrics of a process that serves nothing else."""

import asyncio
import signal
import socket
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx2
import pytest

from backburner import Backburner, Context, capability
from backburner.demo import echo
from backburner.testing.broker.acts import pause
from backburner.testing.proxy import Proxy


@capability("blocking")
async def blocking(_ctx: Context, value: dict[str, Any]) -> dict[str, Any]:
    """Stand for the capability of `gated:app`, to submit it."""
    return value


def submitting(folder, *capabilities):
    """Open the store of the worker's folder, without working on it."""
    store = f"sqlite:///{folder}/backburner.db"
    return Backburner(store=store, capabilities=capabilities)


def probed(start, *arguments, **env):
    """Start a worker on a free port; return it and where it is probed."""
    worker = start("worker", "--dev", "--metrics-port", "0", *arguments, **env)
    return worker, worker.says("Metrics and health are at ").rpartition(" ")[2]


def get(url, path):
    return httpx2.get(f"{url}{path}", trust_env=False, timeout=60)


async def until(url, path, status):
    """Ask until the answer has this status, and return it."""
    while (answer := await asyncio.to_thread(get, url, path)).status_code != status:
        await pause()
    return answer


async def test_a_worker_shows_its_health_and_what_it_counts(start, tmp_path):
    _, url = probed(start)
    async with submitting(tmp_path, echo) as backburner:
        await (await backburner.submit(echo, {})).wait()
    alive, ready, metrics = (
        get(url, path) for path in ("/livez", "/readyz", "/metrics")
    )
    other = get(url, "/v1/jobs")

    assert urlsplit(url).hostname == "127.0.0.1"
    assert [{"status": "ok"}] * 2 == [alive.json(), ready.json()]
    assert "text/plain; version=0.0.4; charset=utf-8" == metrics.headers["content-type"]
    counted = 'backburner_jobs_finished_total{capability="demo.echo",state="succeeded"}'
    assert f"{counted} 1.0" in metrics.text
    assert "backburner_build_info{" in metrics.text
    assert 404 == other.status_code


async def test_a_handler_that_blocks_makes_a_worker_unready(start, gate, tmp_path):
    _, url = probed(start, BACKBURNER_APPS="gated:app")
    async with submitting(tmp_path, blocking) as backburner:
        await backburner.submit(blocking, {})
        await asyncio.to_thread(gate.reached)
    ready = await asyncio.to_thread(get, url, "/readyz")
    alive, metrics = get(url, "/livez"), get(url, "/metrics")
    gate.opened()
    again = await until(url, "/readyz", 200)

    assert (503, "EVENT_LOOP_BLOCKED") == (ready.status_code, ready.json()["code"])
    assert "blocks the event loop" in ready.json()["detail"]
    assert (200, 200) == (alive.status_code, metrics.status_code)
    assert {"status": "ok"} == again.json()


async def test_a_worker_whose_store_is_away_is_not_ready(start, migrated_url):
    parts = urlsplit(migrated_url)
    async with Proxy(parts.hostname, parts.port) as proxy:
        name = f"{parts.username}@127.0.0.1:{proxy.port}"
        store = urlunsplit(parts._replace(netloc=name))
        _, url = await asyncio.to_thread(probed, start, "--store", store)
        await until(url, "/readyz", 200)
        proxy.stop()
        away = await until(url, "/readyz", 503)
        alive = await asyncio.to_thread(get, url, "/livez")
        await proxy.start()
        back = await until(url, "/readyz", 200)

    assert ("STORE_UNAVAILABLE", 200) == (away.json()["code"], alive.status_code)
    assert "the store does not answer" == away.json()["detail"]
    assert {"status": "ok"} == back.json()


def test_a_worker_of_applications_is_warned_that_nobody_shares_its_signatures(start):
    alone, _ = probed(start)
    shared, _ = probed(start, BACKBURNER_LINK_SECRET="s" * 32)
    warned = [
        any("BACKBURNER_LINK_SECRET is not set" in line for line in worker.lines)
        for worker in (alone, shared)
    ]

    assert [True, False] == warned


def test_a_stopping_worker_leaves_with_code_0(start):
    worker, url = probed(start)
    get(url, "/readyz")

    assert 0 == worker.told(signal.SIGTERM).exit_code()
    with pytest.raises(httpx2.ConnectError):
        get(url, "/livez")


def test_a_taken_metrics_port_is_one_line_and_code_2(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("worker", "--dev", "--metrics-port", str(port))

    assert 2 == ended.returncode
    (line,) = ended.stderr.splitlines()
    reason = f"--metrics-port={port} cannot be used: Address already in use"
    assert line.startswith(f"backburner: {reason}")
    assert line.endswith("; choose another port, or --metrics-port 0 for a free one")


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"BACKBURNER_METRICS_PORT": "65536"}, "BACKBURNER_METRICS_PORT: "),
        (
            {"BACKBURNER_METRICS_PORT": "0", "BACKBURNER_METRICS_HOST": "no.invalid"},
            "BACKBURNER_METRICS_HOST='no.invalid' cannot be resolved",
        ),
    ],
)
def test_an_address_that_is_none_is_one_line_and_code_2(run, env, told):
    ended = run("worker", "--dev", **env)

    assert 2 == ended.returncode
    assert ended.stderr.startswith(f"backburner: {told}")
    assert 1 == len(ended.stderr.splitlines())


def test_the_host_is_a_choice(start):
    _, url = probed(start, "--metrics-host", "::1")

    assert url.startswith("http://[::1]:")
    assert 200 == get(url, "/livez").status_code
