"""
Dramatiq on RabbitMQ with results in Redis: one process, eight threads, its default.

    python -m bench.peers.dramatiq_queue submit 5000|worker|stored|forget
"""

import os
import runpy
import sys
import time
from importlib.metadata import version
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from bench.peers import task

NAME = os.environ["BENCH_NAME"]
CHUNK = 500


class Countable(RedisBackend):
    """Stores results under readable names instead of hashes."""

    def build_message_key(self, message: Any) -> str:
        """Name the result of a message."""
        return f"{NAME}:{message.message_id}"


client = redis.Redis.from_url(os.environ["BENCH_RESULTS"])
broker = RabbitmqBroker(url=os.environ["BENCH_URL"], confirm_delivery=True)
broker.add_middleware(Results(backend=Countable(client=client)))
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name=NAME, store_results=True)
def noop(value: dict[str, object]) -> object:
    """Run the common task."""
    return task.run(value)


def submit(count: int) -> dict[str, object]:
    """Enqueue in groups of 500, with publisher confirms, so that jobs are durable."""
    begun = time.perf_counter()
    for first in range(0, count, CHUNK):
        chunk = range(first, min(first + CHUNK, count))
        dramatiq.group([noop.message(task.payload(i)) for i in chunk]).run()
    spent = time.perf_counter() - begun
    return {"submit_per_second": round(count / spent), "version": version("dramatiq")}


def worker() -> None:
    """Run Dramatiq's own worker."""
    sys.argv = ["dramatiq", "bench.peers.dramatiq_queue"]
    sys.argv += ["-p", "1", "-t", "8", "--skip-logging"]
    runpy.run_module("dramatiq", run_name="__main__")


def _keys() -> list[bytes]:
    return list(client.scan_iter(f"{NAME}:*", 5_000))


def stored() -> int:
    """Count the results that are kept."""
    return len(_keys())


def forget() -> None:
    """Delete the data of this run from the servers."""
    for queue in (NAME, f"{NAME}.DQ", f"{NAME}.XQ"):
        broker.channel.queue_delete(queue)
    for key in _keys():
        client.unlink(key)


if __name__ == "__main__":
    task.main(__spec__.name)
