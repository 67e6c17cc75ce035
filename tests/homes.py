"""
Where a run of the tests is at home: which stores, and who tells workers of work.

`BACKBURNER_TEST_HOME` names one or two: `sqlite`, `postgres`, `postgres+rabbitmq`,
`postgres+redis`, `postgres+sqs`. A test that is made for both stores runs on each that
is named; one that is made for any runs on the first. With a broker, every house over
PostgreSQL has it as its transport.
"""

import os
import secrets

import pytest

HOME = os.environ.get("BACKBURNER_TEST_HOME", "sqlite,postgres")
STORES = [home.partition("+")[0] for home in HOME.split(",")]
BROKER = next((h.partition("+")[2] for h in HOME.split(",") if "+" in h), "")
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
    "postgres": {"migrated_url", "own_postgres", "postgres_url"},
}
"""Fixtures that a test asks for by name if it is made for one store only."""


def is_at_home(item):
    """Say whether a test has a store that this run is about."""
    given = set(map(str, item.callspec.params.values())) if _is_dealt(item) else set()
    foreign = {"sqlite", "postgres"} - set(STORES)
    bound = set().union(*(BOUND[store] for store in foreign))
    return not (given & foreign or bound & set(item.fixturenames))


def is_on_postgres(item):
    """Say whether a test's houses are over PostgreSQL."""
    if _is_dealt(item) and "postgres" in item.callspec.params.values():
        return True
    return STORES == ["postgres"] or bool(BOUND["postgres"] & set(item.fixturenames))


def transport():
    """Return the transport of houses over PostgreSQL."""
    if not BROKER:
        return "database"
    variable = URLS[BROKER]
    url = os.environ.get(variable)
    if not url:
        missing = f"{variable} is not set: run the tests by `make test`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    prefix = f"test-{secrets.token_hex(4)}-" if BROKER in SLOW else PREFIX
    return f"private:{prefix}:{url}"


def _is_dealt(item):
    return hasattr(item, "callspec")
