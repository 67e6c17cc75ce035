"""
Celery on RabbitMQ with results in Redis: two processes, its best on two cores.

    python -m bench.peers.celery_queue submit 5000|worker|stored|forget
"""

import os
import time
from importlib.metadata import version

from celery import Celery, group

from bench.peers import task

NAME = os.environ["BENCH_NAME"]
CHUNK = 500
app = Celery(NAME, broker=os.environ["BENCH_URL"], backend=os.environ["BENCH_RESULTS"])
app.conf.update(
    task_default_queue=NAME,
    worker_prefetch_multiplier=64,  # as its manual advises for many short tasks
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    result_backend_transport_options={"global_keyprefix": f"{NAME}:"},
)


@app.task(name="noop")
def noop(value: dict[str, object]) -> object:
    """Run the common task."""
    return task.run(value)


def submit(count: int) -> dict[str, object]:
    """Enqueue in groups of 500."""
    begun = time.perf_counter()
    for first in range(0, count, CHUNK):
        chunk = range(first, min(first + CHUNK, count))
        group(noop.s(task.payload(i)) for i in chunk).apply_async()
    spent = time.perf_counter() - begun
    return {"submit_per_second": round(count / spent), "version": version("celery")}


def worker() -> None:
    """Run Celery's own worker."""
    app.worker_main(
        [
            *("worker", "-P", "prefork", "-c", "2", "-l", "ERROR"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ]
    )


def _keys() -> list[bytes]:
    return list(app.backend.client.scan_iter(f"{NAME}:*", 5_000))


def stored() -> int:
    """Count the results that are kept."""
    return len(_keys())


def forget() -> None:
    """Delete the data of this run from the servers."""
    with app.connection_for_write() as connection:
        connection.default_channel.queue_delete(NAME)
    for key in _keys():
        app.backend.client.unlink(key)


if __name__ == "__main__":
    task.main(__spec__.name)
