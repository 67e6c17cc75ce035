"""Converts errors of AWS into results of data access."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from backburner_apps.features.aws.items import INDEX
from backburner_apps.features.core.result import DataAccessError, Result, ResultCode

P = ParamSpec("P")
T = TypeVar("T")

LOST: Final = "ConditionalCheckFailedException"
CANCELLED: Final = "TransactionCanceledException"
"""A condition of a transaction did not hold, or another transaction was faster."""
_THROTTLED: Final = frozenset(
    {
        *("ProvisionedThroughputExceededException", "ThrottlingException"),
        *("RequestLimitExceeded", "RequestThrottled", "Throttling", "SlowDown"),
        *("TooManyRequestsException", "TransactionInProgressException"),
        CANCELLED,
    }
)


def code_of(error: Exception) -> str:
    """Return the code that AWS sent, or the error's type if none came."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "Unknown"))
    return type(error).__name__


def judged(error: Exception, table: str = "") -> Result[Any]:
    """Return the result for a failed call, without AWS's own message."""
    code = code_of(error)
    if code in _THROTTLED:
        return Result.failed(ResultCode.THROTTLED, f"AWS throttled the call ({code})")
    if _lacks_index(error):
        return Result.failed(ResultCode.MISSING_INDEX, missing_index(table))
    return Result.failed(ResultCode.STORE_ERROR, f"the call to AWS failed ({code})")


def missing_index(table: str) -> str:
    """Return the message that tells how to add the index to an imported table."""
    return (
        f"table {table} has no index {INDEX}: add it with "
        f"`python deploy/aws/add_index.py {table}` (deploy/aws/RUNBOOK.md)"
    )


def raising(call: Callable[P, T]) -> Callable[P, T]:
    """Return a function that raises `DataAccessError` if its call of AWS fails."""

    @wraps(call)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except (ClientError, BotoCoreError) as error:
            result = judged(error)
            code = result.code or ResultCode.STORE_ERROR
            raise DataAccessError(code, result.error or "") from error

    return checked


def _lacks_index(error: Exception) -> bool:
    is_invalid = code_of(error) in {"ValidationException", "ResourceNotFoundException"}
    return is_invalid and "index" in str(error).lower()
