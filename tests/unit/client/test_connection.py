"""What a client tells its transport about TLS."""

import pytest

from backburner.client.connection import Connection


def verify(url):
    return Connection(url, None, 1.0).settings()["verify"]


def test_a_plain_connection_to_this_machine_loads_no_authorities():
    assert 0 == verify("http://127.0.0.1:8765").cert_store_stats()["x509_ca"]


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:8765", "https://jobs.example", "http://jobs.example"]
)
def test_any_other_connection_has_the_usual_ones(url):
    assert verify(url) is True
