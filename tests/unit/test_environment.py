"""What settings and messages show of a URL."""

import pytest

from backburner.environment import without_passwords


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:secret@host", "redis://…@host"),
        ("redis://:a@b@host:6379/0", "redis://…@host:6379/0"),
        ("amqp://user:pa@ss@host/x", "amqp://…@host/x"),
        ("postgresql://user:pa/ss@host/db", "postgresql://…@host/db"),
        ("postgresql://user:pa ss@host/db", "postgresql://…@host/db"),
        ("https://host/x?sig=abc&passwd=q", "https://host/x?sig=…&passwd=…"),
        ("sqs://us-east-1?wait=1&api_key=4", "sqs://us-east-1?wait=1&api_key=…"),
        ("host=x password=abc user=y", "host=x password=… user=y"),
        ("pwd=abc, client_secret=def", "pwd=… client_secret=…"),
    ],
)
def test_credentials_are_never_shown(text, shown):
    assert shown == without_passwords(text)


@pytest.mark.parametrize(
    "text",
    [
        "cannot reach redis://host:6379/0: connection refused",
        "redis://host:6379/0 does not answer; ask admin@example.com",
        "sqlite:///jobs.db",
        "bypass=1 tokens=3",
    ],
)
def test_other_text_is_shown_as_it_is(text):
    assert text == without_passwords(text)
