"""
What `make test` leaves out, so that it ends within ten minutes on two cores.

With `--brief` a test that is made for both stores runs on one of them, and those marked
`thorough` do not run. CI runs `make coverage`, which leaves out nothing, and so does
`make test` with `ARGS`. The tests of how a store keeps its contract run on each store.
"""

import pytest

THOROUGH = (
    "tests/bench/",  # `make bench` itself
    "tests/chaos/",  # small forms of `make chaos`
    "tests/services/",  # images and the programs that set up servers
    "tests/suite/",  # tests of what the tests are run with
)
"""Folders whose tests are all as if marked `thorough`."""


def pytest_addoption(parser):
    parser.addoption(
        "--brief",
        action="store_true",
        help="one store for each test, and none of those marked `thorough`",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leave out the thorough tests of a brief run."""
    if not config.getoption("--brief"):
        return
    config.hook.pytest_deselected(items=list(filter(is_thorough, items)))
    items[:] = [item for item in items if not is_thorough(item)]


def is_thorough(item):
    """Say whether only a run that is not brief has a test."""
    marked = item.get_closest_marker("thorough")
    return marked is not None or item.nodeid.startswith(THOROUGH)
