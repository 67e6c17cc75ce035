"""The result of data access: a value, or an error with a code."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class ResultCode(StrEnum):
    """The outcome of an access to stored data."""

    OK = "OK"
    REPLAYED = "REPLAYED"
    """The same request was stored earlier; the data is its record."""
    NOT_FOUND = "NOT_FOUND"
    """There is no such job, or it belongs to another user."""
    CONFLICT = "CONFLICT"
    """The job's status does not allow the change, for example because it has ended."""
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    """The idempotency key was used with another request."""
    UNKNOWN_FEATURE = "UNKNOWN_FEATURE"
    THROTTLED = "THROTTLED"
    """The store rejected the call because of too many requests; try again later."""
    STORE_ERROR = "STORE_ERROR"
    MISSING_INDEX = "MISSING_INDEX"
    """The store lacks an index that the query needs."""


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """A value, or an error with a code; data access returns it instead of raising."""

    success: bool
    data: T | None = None
    error: str | None = None
    code: ResultCode | None = None

    @classmethod
    def of(cls, data: T) -> "Result[T]":
        """Return a successful result."""
        return cls(success=True, data=data, code=ResultCode.OK)

    @classmethod
    def failed(cls, code: ResultCode, error: str) -> "Result[T]":
        """Return an error."""
        return cls(success=False, error=error, code=code)

    def unwrap(self) -> T:
        """Return the value, or raise `DataAccessError`."""
        if not self.success or self.data is None:
            raise DataAccessError(self.code or ResultCode.STORE_ERROR, self.error or "")
        return self.data


class DataAccessError(Exception):
    """Stored data could not be read or written; another attempt may succeed."""

    def __init__(self, code: ResultCode, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
