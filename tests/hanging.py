"""
End a test that hangs: it fails with a stack of every thread, and the run goes on.

A test that does not end by the failure that is raised into it ends its process; with
xdist the run goes on in a new one and names the test that was running.
"""

import faulthandler
import os
import signal
import sys

import pytest

EXIT_CODE = 70


def pytest_addoption(parser):
    parser.addoption(
        "--hang-seconds",
        type=float,
        default=600.0,
        help="fail a test after this many seconds (0: never; chaos: twelve times that)",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    seconds = item.config.getoption("--hang-seconds")
    if item.get_closest_marker("chaos") or item.get_closest_marker("experiment"):
        seconds *= 12
    times = 0

    def end(_number, _frame):
        nonlocal times
        times += 1
        faulthandler.dump_traceback(file=sys.__stderr__)
        if times > 1:
            print(
                f"{item.nodeid} cannot be ended: ending the process",
                file=sys.__stderr__,
            )
            os._exit(EXIT_CODE)
        pytest.fail(f"the test hangs: it was ended after {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, end)
    # The second alarm comes only if the first could not end the test.
    signal.setitimer(signal.ITIMER_REAL, seconds, max(5.0, seconds / 5))
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
