"""The task of every Python peer, and its record of runs. Only standard library."""

import asyncio
import inspect
import json
import os
import sys
from importlib import import_module

_marks = os.open(os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def payload(i: int) -> dict[str, object]:
    """Return about 200 bytes, as many as Backburner's jobs get."""
    return {"i": i, "user": "u-000042", "kind": "noop", "pad": "x" * 150}


def run(value: dict[str, object]) -> object:
    """Record the run and return the index."""
    os.write(_marks, b".")
    return value["i"]


def main(name: str) -> None:
    """Run a command of a peer's module under its own name, so that tasks are found."""
    peer = import_module(name)
    match sys.argv[1:]:
        case ["submit", count]:
            print(json.dumps(_done(peer.submit(int(count)))))
        case ["worker"]:
            _done(peer.worker())
        case ["stored"]:
            print(_done(peer.stored()))
        case ["forget"]:
            _done(peer.forget())


def _done(answer: object) -> object:
    return asyncio.run(answer) if inspect.iscoroutine(answer) else answer
