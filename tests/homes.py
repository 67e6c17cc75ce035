"""
Where a run of the tests is at home: which stores, and who tells workers of work.

`BACKBURNER_TEST_HOME` names some: `sqlite`, `postgres`, `postgres+rabbitmq`,
`postgres+redis`, `postgres+sqs`. A test that is made for both stores runs on each that
is named; one that is made for any runs on the first. With a broker, every instance over
PostgreSQL has it as its transport. Where PostgreSQL is named more than once, as in
`sqlite,postgres,postgres+rabbitmq`, each test has one of those transports, always the
same: they share the tests by the tests' names.
"""

import os
import secrets
import zlib

import pytest

HOME = os.environ.get("BACKBURNER_TEST_HOME", "sqlite,postgres")
STORES = list(dict.fromkeys(home.partition("+")[0] for home in HOME.split(",")))
BROKERS = [
    home.partition("+")[2] for home in HOME.split(",") if home.startswith("postgres")
]
"""By whom instances over PostgreSQL are told of work; empty: by PostgreSQL itself."""
BROKER = next(filter(None, BROKERS), "")
URLS = {
    "rabbitmq": "BACKBURNER_TEST_RABBITMQ_URL",
    "redis": "BACKBURNER_TEST_REDIS_URL",
    "sqs": "BACKBURNER_TEST_SQS_URL",
}
PREFIX = f"test-{secrets.token_hex(4)}-"
"""Of this process's queues: brokers are shared with others."""
SLOW = {"sqs"}
"""Brokers that must not be left with what a test dumped: theirs are new in each."""
BOUND = {
    "sqlite": {"path", "standing", "write"},
    "postgres": {"migrated_url", "own_postgres", "pgvector_url", "postgres_url"},
}
"""Fixtures that a test asks for by name if it is made for one store only."""
ONE_STORE = (
    "tests/ai/",
    "tests/apps/",
    "tests/brokers/",
    "tests/engine/foreign/",
    "tests/engine/test_flows.py",
    "tests/engine/test_streaming.py",
    "tests/http/",
)
"""
Tests of what uses a store, not of how it keeps its contract: as if marked `one_store`.

Half of the tests of each file run on one store, half on the other. Those of full size,
which are marked `chaos`, run on both.
"""
BOTH_STORES = (
    "tests/apps/documents/retrieval/",  # statements of its own for each database
    "tests/http/test_events.py",
    "tests/http/test_jobs.py",
    "tests/http/test_reach.py",
    "tests/http/test_store_faults.py",
    "tests/http/ui/test_crawl.py",
    "tests/http/ui/test_large.py",
    "tests/http/ui/test_shifts.py",
)
"""Those of them that run on both all the same."""
CONTRACTS = ("tests/conformance/", "tests/store/")
"""Tests of how a store keeps its contract: on both, also in a run that is `--brief`."""


def is_at_home(item):
    """Say whether a test has a store that this run is about, and is its turn on it."""
    return _has_its_store(item) and _is_its_turn(item)


def _is_its_turn(item):
    """Say whether a test that one store is enough for has that one."""
    if len(STORES) < 2 or not _is_one_enough(item):
        return True
    given = set(map(str, item.callspec.params.values())) if _is_dealt(item) else set()
    name = f"{item.path.name}::{item.originalname}"
    return not given & {"sqlite", "postgres"} or one_of(name) in given


def _is_one_enough(item):
    if item.get_closest_marker("one_store") or _is_brief_with(item):
        return True
    place = item.nodeid
    is_listed = place.startswith(ONE_STORE) and not place.startswith(BOTH_STORES)
    return is_listed and not item.get_closest_marker("chaos")


def _is_brief_with(item):
    """Say whether `make test` has a test on one store, whichever it is."""
    is_contract = item.nodeid.startswith(CONTRACTS)
    return item.config.getoption("--brief") and not is_contract


def one_of(test):
    """Return on which of this run's stores a test is if one is enough."""
    return STORES[zlib.crc32(test.encode()) % len(STORES)]


def _has_its_store(item):
    given = set(map(str, item.callspec.params.values())) if _is_dealt(item) else set()
    foreign = {"sqlite", "postgres"} - set(STORES)
    bound = set().union(*(BOUND[store] for store in foreign))
    return not (given & foreign or bound & set(item.fixturenames))


def is_on_postgres(item):
    """Say whether a test's instances are over PostgreSQL."""
    if _is_dealt(item) and "postgres" in item.callspec.params.values():
        return True
    return STORES == ["postgres"] or bool(BOUND["postgres"] & set(item.fixturenames))


def broker_of(test):
    """Return the broker that notifies a test's instances; empty: the database."""
    return BROKERS[zlib.crc32(test.encode()) % len(BROKERS)] if BROKERS else ""


def transport(test):
    """Return the transport of a test's instances over PostgreSQL."""
    broker = broker_of(test)
    if not broker:
        return "database"
    variable = URLS[broker]
    url = os.environ.get(variable)
    if not url:
        missing = f"{variable} is not set: run the tests by `make test`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    prefix = f"test-{secrets.token_hex(4)}-" if broker in SLOW else PREFIX
    return f"private:{prefix}:{url}"


def _is_dealt(item):
    return hasattr(item, "callspec")
