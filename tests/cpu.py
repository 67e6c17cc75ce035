"""
Record how much CPU time each test takes, processes that it started included.

`--cpu-report FILE` appends one JSON line for the collection and one per test. A
process that outlives its test is counted with the last test of the file; the sum of a
file is exact, a single test's may be off. Servers that were started before the run are
not included.
"""

import json
import os
import resource
from contextlib import suppress
from pathlib import Path

import pytest

TICKS = os.sysconf("SC_CLK_TCK")


def pytest_addoption(parser):
    parser.addoption("--cpu-report", default="", help="append CPU times to this file")


def pytest_configure(config):
    path = config.getoption("--cpu-report")
    is_worker = hasattr(config, "workerinput")
    if path and (is_worker or not getattr(config.option, "tx", None)):
        config.pluginmanager.register(Report(Path(path).absolute()))


class Report:
    """The CPU time of this process and its descendants, from test to test."""

    def __init__(self, path):
        self._path = path
        self._last = self._living = 0.0

    def pytest_collection_finish(self):
        self._note("collection")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        result = yield
        is_last = nextitem is None or nextitem.path != item.path
        self._note(item.nodeid, with_living=is_last)
        return result

    def pytest_unconfigure(self):
        self._note("end")

    def _note(self, name, *, with_living=True):
        if with_living:
            self._living = living()
        now = used() + self._living
        line = json.dumps({"test": name, "cpu": round(now - self._last, 4)})
        self._last = now
        with self._path.open("a") as file:
            file.write(line + "\n")


def used():
    """Return the CPU seconds of this process and of its children that have ended."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def living():
    """Return the CPU seconds of this process's descendants that are alive."""
    parents, seconds = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            parents[pid] = int(fields[1])
            seconds[pid] = sum(map(int, fields[11:15])) / TICKS
    found, mine = 0.0, {os.getpid()}
    while mine:
        mine = {pid for pid, parent in parents.items() if parent in mine}
        found += sum(seconds[pid] for pid in mine)
    return found
