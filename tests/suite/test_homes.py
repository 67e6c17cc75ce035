"""Tests on PostgreSQL are shared out to the transports that a run is about."""

from collections import Counter

import pytest

from tests import homes

TESTS = [f"tests/http/test_jobs.py::test_{n}[postgres]" for n in range(1_000)]


@pytest.mark.parametrize("brokers", [["", "rabbitmq"], ["", "rabbitmq", "redis"]])
def test_each_transport_has_its_share_of_the_tests(brokers, monkeypatch):
    monkeypatch.setattr(homes, "BROKERS", brokers)
    shares = Counter(map(homes.broker_of, TESTS))

    assert set(brokers) == set(shares)
    assert min(shares.values()) > 0.8 * len(TESTS) / len(brokers)


def test_a_test_always_has_the_same_transport(monkeypatch):
    monkeypatch.setattr(homes, "BROKERS", ["", "rabbitmq"])

    assert [*map(homes.broker_of, TESTS)] == [*map(homes.broker_of, TESTS)]


def test_each_store_has_its_share_of_those_that_need_one(monkeypatch):
    monkeypatch.setattr(homes, "STORES", ["sqlite", "postgres"])
    shares = Counter(map(homes.one_of, TESTS))

    assert {"sqlite", "postgres"} == set(shares)
    assert min(shares.values()) > 0.8 * len(TESTS) / 2


def test_one_transport_has_them_all(monkeypatch):
    monkeypatch.setattr(homes, "BROKERS", ["sqs"])

    assert {"sqs"} == set(map(homes.broker_of, TESTS))
