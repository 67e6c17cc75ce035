"""Adapters whose package is not installed: what to install is said."""

import subprocess
import sys

PROGRAM = """
import sys
for module in ("aiobotocore", "aiormq", "asyncpg", "openai", "redis"):
    sys.modules[module] = None  # as if it were not installed

from backburner.adapters import find_broker, find_providers, find_store
from backburner.clock import SystemClock
from backburner.domain.errors import ConfigurationError
from backburner.ports.faults import NoFaults
from backburner.settings import Settings

clock = SystemClock()
for find in (
    lambda: find_store("postgresql://localhost/db", clock, NoFaults()),
    lambda: find_broker("amqp://localhost"),
    lambda: find_broker("rediss://localhost"),
    lambda: find_broker("sqs://key:secret@eu-west-1"),
    lambda: find_providers(Settings(ai=("openai",), openai_api_key="k"), clock),
):
    try:
        find()
    except ConfigurationError as error:
        print(error)
"""


def test_a_missing_package_is_named_with_the_extra_that_has_it():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    expected = [
        ("BACKBURNER_STORE", "postgresql", "asyncpg", "postgres"),
        ("BACKBURNER_TRANSPORT", "amqp", "aiormq", "rabbitmq"),
        ("BACKBURNER_TRANSPORT", "rediss", "redis", "redis"),
        ("BACKBURNER_TRANSPORT", "sqs", "aiobotocore", "aws"),
        ("BACKBURNER_AI", "openai", "openai", "openai"),
    ]
    assert [
        f"{setting}: {name!r} needs the Python package {package!r}, which is not "
        f'installed: pip install "backburner[{extra}]"'
        for setting, name, package, extra in expected
    ] == ended.stdout.splitlines(), ended.stderr
