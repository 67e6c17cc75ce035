"""The findings of `doctor`."""

from enum import StrEnum
from typing import Final, NamedTuple


class Status(StrEnum):
    """How a check ended."""

    PASS = "pass"  # noqa: S105 - not a password
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """The result of one check; `fix` says what to do unless it passed."""

    status: Status
    name: str
    message: str
    fix: str = ""


FEW_BYTES: Final = 1024**3
TOO_FEW_BYTES: Final = 100 * 1024**2


def room(name: str, free: int) -> Finding:
    """Check whether the free disk space is sufficient."""
    message = f"{free / 1024**3:.1f} GiB free"
    if free >= FEW_BYTES:
        return Finding(Status.PASS, name, message)
    status = Status.FAIL if free < TOO_FEW_BYTES else Status.WARN
    fix = "free disk space, or keep jobs for fewer days"
    return Finding(status, name, message, fix)
