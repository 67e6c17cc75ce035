"""What an examination of the installation comes to."""

from enum import StrEnum
from typing import NamedTuple


class Status(StrEnum):
    """How a check ended."""

    PASS = "pass"  # noqa: S105 - not a password
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """One thing looked at; `fix` says what to do unless it passed."""

    status: Status
    name: str
    message: str
    fix: str = ""
