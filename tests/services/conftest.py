"""Where the real servers are: a URL each, or a skip at home and a failure in CI."""

import os

import pytest


def the_server_at(variable: str) -> str:
    url = os.environ.get(variable)
    if url:
        return url
    reason = f"{variable} is not set: run `make test`, or start one: `make services`"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres_url() -> str:
    return the_server_at("BACKBURNER_TEST_POSTGRES_URL")


@pytest.fixture(scope="session")
def redis_url() -> str:
    return the_server_at("BACKBURNER_TEST_REDIS_URL")


@pytest.fixture(scope="session")
def rabbitmq_url() -> str:
    return the_server_at("BACKBURNER_TEST_RABBITMQ_URL")


@pytest.fixture(scope="session")
def sqs_url() -> str:
    return the_server_at("BACKBURNER_TEST_SQS_URL")
