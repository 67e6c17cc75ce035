"""
All errors of the platform.

BackburnerError               code, retryable
├── CallerError               the request cannot be fulfilled as sent           → 4xx
│   ├── InvalidInput          it does not match the capability's model
│   ├── PromptRefused         it looks like a prompt injection
│   ├── UnknownCapability     no capability has this name
│   ├── JobNotFound           no such job, or it belongs to another owner
│   ├── FlowNotFound          no such flow, or it belongs to another owner
│   ├── BatchNotFound         no such batch, or it belongs to another owner
│   ├── KeyNotFound           no such API key, or it belongs to another owner
│   ├── QueueNotFound         no queue has this name
│   ├── ScheduleNotFound      no schedule has this name
│   ├── WorkerNotFound        no live worker has this id
│   ├── EndpointNotFound      no such webhook endpoint, or of another owner
│   ├── TooManyWaiting        the share's limit of waiting jobs is reached
│   ├── IdempotencyConflict   the key was used with another body
│   ├── SignalConflict        the signal has another value, or the wait is over
│   ├── SignalTooLarge        the signal's value exceeds the size limit
│   ├── BlobMissing           no such blob, or it was deleted
│   ├── BlobTooLarge          the content exceeds the size limit
│   ├── BlobMismatch          the upload differs from its announced size or digest
│   ├── UploadTooSlow         the content took too long to be written
│   ├── BudgetExhausted       a budget has too little left in this window
│   └── IllegalTransition     the job's state does not allow the operation
├── WorkError                 the handler failed; stored with the job
│   ├── TransientError        a retry may succeed
│   │   └── Throttled         a provider's rate limit: uses up no attempt
│   └── PermanentError        a retry would fail the same way
│       ├── OverBudget        the job has used up its hold and its budget
│       └── AnswerTruncated   a model's answer reached its token limit
├── ClaimLost                 the worker no longer holds the job; nothing is stored
├── TransactionTooLong        a body took too long and was rolled back          → 503
├── StoreUnavailable          the database cannot be used                       → 503
│   └── StoreFull             the database has no space left                    → 507
├── BrokerUnavailable         the message broker cannot be reached; jobs still run
└── ConfigurationError        raised at start-up, with the setting's name

The branch tells who must act, and `retryable` whether a retry may succeed. `code` is
stable and public; messages may change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a job ended or was returned to its queue, as shown to users."""

    code: str
    message: str
    retryable: bool = False
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class FieldError:
    """An invalid field of a request and the reason."""

    path: str
    message: str

    @classmethod
    def of(cls, fault: Mapping[str, Any], *within: str) -> Self:
        """Convert an error of Pydantic in a field of `within`."""
        path = ".".join(map(str, (*within, *fault["loc"])))
        return cls(path, reason(fault))


def reason(fault: Mapping[str, Any]) -> str:
    """Return the message of an error of Pydantic, without the exception's type."""
    message: str = fault["msg"]
    return message.removeprefix("Value error, ")


MAX_MESSAGE = 2_000


def readable(text: str) -> str:
    """Make any text storable: shorten it and replace invalid characters."""
    return text[:MAX_MESSAGE].encode("utf-8", "replace").decode("utf-8")


class BackburnerError(Exception):
    """The base class of all errors that Backburner raises."""

    code: ClassVar[str] = "ERROR"
    retryable: ClassVar[bool] = False


class CallerError(BackburnerError):
    """The request cannot be fulfilled as sent."""

    code = "BAD_REQUEST"


class InvalidInput(CallerError):
    """The input does not match the capability's model."""

    code = "INVALID_INPUT"

    def __init__(self, message: str, fields: Sequence[FieldError] = ()) -> None:
        super().__init__(message)
        self.fields = tuple(fields)


class PromptRefused(CallerError):
    """The input looks like a prompt injection: instructions to the model."""

    code = "AI_PROMPT_INJECTION"

    def __init__(self, score: int, rules: Sequence[str]) -> None:
        # Without the rules: with their names, an attacker could try until none matches.
        super().__init__(
            "the input looks like a prompt injection: instructions to the model"
        )
        self.score = score
        self.rules = tuple(rules)


class UnknownCapability(CallerError):
    """No capability has this name."""

    code = "UNKNOWN_CAPABILITY"

    def __init__(
        self,
        message: str,
        *,
        suggestion: str | None = None,
        fields: Sequence[FieldError] = (),
    ) -> None:
        super().__init__(message)
        self.suggestion = suggestion
        self.fields = tuple(fields)


def within(
    path: str, error: InvalidInput | UnknownCapability
) -> InvalidInput | UnknownCapability:
    """Prefix an error with the part of the request that it is about."""
    message = f"{path}: {error}"
    fields = [FieldError(f"{path}.{f.path}", f.message) for f in error.fields]
    if isinstance(error, InvalidInput):
        return InvalidInput(message, fields or [FieldError(path, str(error))])
    unknown = FieldError(f"{path}.capability", "no capability has this name")
    return UnknownCapability(
        message, suggestion=error.suggestion, fields=fields or [unknown]
    )


class JobNotFound(CallerError):
    """The job does not exist or belongs to another owner."""

    code = "JOB_NOT_FOUND"


class QueueNotFound(CallerError):
    """No queue has this name."""

    code = "QUEUE_NOT_FOUND"


class ScheduleNotFound(CallerError):
    """No schedule has this name."""

    code = "SCHEDULE_NOT_FOUND"


class WorkerNotFound(CallerError):
    """No live worker has this id."""

    code = "WORKER_NOT_FOUND"


class EndpointNotFound(CallerError):
    """The webhook endpoint does not exist or belongs to another owner."""

    code = "ENDPOINT_NOT_FOUND"


class KeyNotFound(CallerError):
    """The API key does not exist or belongs to another owner."""

    code = "KEY_NOT_FOUND"


class FlowNotFound(CallerError):
    """The flow does not exist or belongs to another owner."""

    code = "FLOW_NOT_FOUND"


class BatchNotFound(CallerError):
    """The batch does not exist or belongs to another owner."""

    code = "BATCH_NOT_FOUND"


class IdempotencyConflict(CallerError):
    """The idempotency key was used with another body."""

    code = "IDEMPOTENCY_CONFLICT"


class TooManyWaiting(CallerError):
    """The share's limit of waiting jobs in the queue is reached; nothing was stored."""

    code = "TOO_MANY_WAITING"
    retryable = True

    def __init__(self, queue: str, *, depth: int, cap: int) -> None:
        super().__init__(
            f"{depth} jobs of this share are already waiting in queue {queue!r}, "
            f"and at most {cap} are allowed"
        )
        self.queue, self.depth, self.cap = queue, depth, cap


class IllegalTransition(CallerError):
    """The job's state does not allow the operation."""

    code = "ILLEGAL_TRANSITION"


class SignalConflict(CallerError):
    """The signal already has another value, or nothing waits for it any more."""

    code = "SIGNAL_CONFLICT"


class SignalTooLarge(CallerError):
    """The signal's value exceeds the size limit."""

    code = "SIGNAL_TOO_LARGE"


class BlobMissing(CallerError):
    """The blob does not exist, or it was deleted."""

    code = "BLOB_MISSING"


class BlobTooLarge(CallerError):
    """The content exceeds the size limit."""

    code = "BLOB_TOO_LARGE"


class BlobMismatch(CallerError):
    """The uploaded content differs from its announced size or digest."""

    code = "BLOB_MISMATCH"


class UploadTooSlow(CallerError):
    """The content took too long to be written."""

    code = "UPLOAD_TOO_SLOW"


class BudgetExhausted(CallerError):
    """A budget has too little left in its current window."""

    code = "BUDGET_EXHAUSTED"
    retryable = True

    def __init__(  # noqa: PLR0913 - what a caller needs to know about the budget
        self,
        message: str,
        *,
        scope: str,
        unit: str,
        limit: int,
        left: int,
        per: int,
        retry_after: int,
    ) -> None:
        super().__init__(message)
        self.scope = scope
        self.unit = unit
        self.limit = limit
        self.left = left
        self.per = per
        """The window's length, in seconds."""
        self.retry_after = retry_after
        """Seconds until the window ends."""


class HoldExhausted(BudgetExhausted):
    """A job has used up its hold, and a budget does not let it use more."""


class WorkError(BackburnerError):
    """The handler failed. Raise one of the subclasses from a handler."""

    code = "WORK_FAILED"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.problem_code = code or self.code


class TransientError(WorkError):
    """A retry may succeed."""

    code = "TRANSIENT"
    retryable = True


class Throttled(TransientError):
    """A provider's rate limit was hit; with `retry_after` it uses up no attempt."""

    code = "THROTTLED"

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        code: str | None = None,
        lane: str | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after
        self.lane = lane


class PermanentError(WorkError):
    """A retry would fail the same way."""

    code = "PERMANENT"


class OverBudget(PermanentError):
    """The job has used up its hold, and its budget has nothing left."""

    code = "OVER_BUDGET"


class AnswerTruncated(PermanentError):
    """A model's answer was cut off at its token limit; `text` is the partial answer."""

    code = "AI_TRUNCATED"

    def __init__(self, message: str, *, text: str = "") -> None:
        super().__init__(message)
        self.text = text


class ClaimLost(BackburnerError):
    """The worker no longer holds the job; its transaction was rolled back."""

    code = "CLAIM_LOST"

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"job {job_id} is no longer held by this worker: nothing was committed"
        )


class TransactionTooLong(BackburnerError):
    """A transaction body took longer than allowed; nothing was committed."""

    code = "TRANSACTION_TOO_LONG"
    retryable = True

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the transaction was rolled back: its body took longer than {seconds:g} s;"
            " do less in one transaction, or raise BACKBURNER_TRANSACTION_SECONDS"
        )


class StoreUnavailable(BackburnerError):
    """The database cannot be read or written at the moment."""

    code = "STORE_UNAVAILABLE"
    retryable = True


class StoreFull(StoreUnavailable):
    """The database has no space left."""

    code = "STORE_FULL"


class BrokerUnavailable(BackburnerError):
    """The message broker cannot be reached; jobs still run from the store."""

    code = "BROKER_UNAVAILABLE"
    retryable = True


class ConfigurationError(BackburnerError):
    """The configuration is invalid, so Backburner cannot start."""

    code = "CONFIGURATION"
