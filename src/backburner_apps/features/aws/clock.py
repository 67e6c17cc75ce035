"""The clock of functions, which have no engine and therefore no engine's clock."""

from datetime import UTC, datetime


def now() -> datetime:
    """Return the time of the machine, which AWS synchronises."""
    return datetime.now(UTC)  # noqa: TID251 - see above
