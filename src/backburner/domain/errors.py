"""
All errors of the platform.

BackburnerError               code, retryable
├── CallerError               the request cannot be honoured as sent            → 4xx
│   ├── InvalidInput          it does not match the capability's model
│   ├── PromptRefused         it looks like instructions to the model
│   ├── UnknownCapability     nobody here knows that name
│   ├── JobNotFound           no such job, or somebody else's
│   ├── FlowNotFound          no such flow, or somebody else's
│   ├── BatchNotFound         no such batch, or somebody else's
│   ├── KeyNotFound           no such API key, or somebody else's
│   ├── QueueNotFound         no queue has this name
│   ├── ScheduleNotFound      no schedule has this name
│   ├── WorkerNotFound        no worker with this id is alive
│   ├── EndpointNotFound      no such webhook endpoint, or somebody else's
│   ├── TooManyWaiting        as many jobs of the share wait as may
│   ├── IdempotencyConflict   the key is taken by another body
│   ├── BlobMissing           a content that was kept apart is not there
│   ├── BlobTooLarge          a content has more bytes than it may
│   ├── BlobMismatch          what was uploaded is not what was announced
│   ├── UploadTooSlow         a content took too long to be written
│   ├── BudgetExhausted       a budget has no room for it in this window
│   └── IllegalTransition     the job's state does not allow it
├── WorkError                 the work was tried and failed; kept on the job
│   ├── TransientError        worth another attempt
│   │   └── Throttled         a provider said "later": costs no attempt
│   └── PermanentError        would fail the same way again
│       ├── OverBudget        the job has used what its budget allows
│       └── AnswerTruncated   a model's answer reached its limit of tokens
├── ClaimLost                 the job is no longer this worker's: nothing is stored
├── TransactionTooLong        a body took too long and was rolled back          → 503
├── StoreUnavailable          the database misbehaves                           → 503
│   └── StoreFull             it has no room left                               → 507
├── BrokerUnavailable         the message broker cannot be had; work goes on
└── ConfigurationError        said at start-up, with the setting's name

A class answers two questions: who must act (its branch), and would another try help
(`retryable`). `code` is stable and public; messages may change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a job ended or was put back: what a user sees, on the wire and in history."""

    code: str
    message: str
    retryable: bool = False
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field of a request and what is wrong with it."""

    path: str
    message: str


MAX_MESSAGE = 2_000


def readable(text: str) -> str:
    """Keep what can be stored of a text that may hold anything."""
    return text[:MAX_MESSAGE].encode("utf-8", "replace").decode("utf-8")


class BackburnerError(Exception):
    """Anything Backburner raises on purpose."""

    code: ClassVar[str] = "ERROR"
    retryable: ClassVar[bool] = False


class CallerError(BackburnerError):
    """The request cannot be honoured as sent."""

    code = "BAD_REQUEST"


class InvalidInput(CallerError):
    """The input does not match the capability's model."""

    code = "INVALID_INPUT"

    def __init__(self, message: str, fields: Sequence[FieldError] = ()) -> None:
        super().__init__(message)
        self.fields = tuple(fields)


class PromptRefused(CallerError):
    """The input looks like instructions to the model that is to read it."""

    code = "AI_PROMPT_INJECTION"

    def __init__(self, score: int, rules: Sequence[str]) -> None:
        # Not which rules: whoever is told can try until none of them matches.
        super().__init__(
            "the input looks like a prompt injection: instructions to the model"
        )
        self.score = score
        self.rules = tuple(rules)


class UnknownCapability(CallerError):
    """No capability has that name."""

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
    """Say in which part of a request something is wrong."""
    message = f"{path}: {error}"
    fields = [FieldError(f"{path}.{f.path}", f.message) for f in error.fields]
    if isinstance(error, InvalidInput):
        return InvalidInput(message, fields or [FieldError(path, str(error))])
    told = FieldError(f"{path}.capability", "no capability has this name")
    return UnknownCapability(
        message, suggestion=error.suggestion, fields=fields or [told]
    )


class JobNotFound(CallerError):
    """No such job, or it is somebody else's."""

    code = "JOB_NOT_FOUND"


class QueueNotFound(CallerError):
    """No queue has that name."""

    code = "QUEUE_NOT_FOUND"


class ScheduleNotFound(CallerError):
    """No schedule has that name."""

    code = "SCHEDULE_NOT_FOUND"


class WorkerNotFound(CallerError):
    """No worker with that id is alive."""

    code = "WORKER_NOT_FOUND"


class EndpointNotFound(CallerError):
    """No such webhook endpoint, or it is somebody else's."""

    code = "ENDPOINT_NOT_FOUND"


class KeyNotFound(CallerError):
    """No such API key, or it is somebody else's."""

    code = "KEY_NOT_FOUND"


class FlowNotFound(CallerError):
    """There is no such flow, or it is somebody else's."""

    code = "FLOW_NOT_FOUND"


class BatchNotFound(CallerError):
    """There is no such batch, or it is somebody else's."""

    code = "BATCH_NOT_FOUND"


class IdempotencyConflict(CallerError):
    """The idempotency key was used with another body."""

    code = "IDEMPOTENCY_CONFLICT"


class TooManyWaiting(CallerError):
    """As many jobs of the share wait in the queue as may; nothing was stored."""

    code = "TOO_MANY_WAITING"
    retryable = True

    def __init__(self, queue: str, *, depth: int, cap: int) -> None:
        super().__init__(
            f"{depth} jobs of this share are already waiting in queue {queue!r}, "
            f"and at most {cap} are allowed"
        )
        self.queue, self.depth, self.cap = queue, depth, cap


class IllegalTransition(CallerError):
    """The job's state does not allow what was asked."""

    code = "ILLEGAL_TRANSITION"


class SignalConflict(CallerError):
    """The signal cannot be taken: another value is there, or the wait is over."""

    code = "SIGNAL_CONFLICT"


class SignalTooLarge(CallerError):
    """The value of the signal has more bytes than it may."""

    code = "SIGNAL_TOO_LARGE"


class BlobMissing(CallerError):
    """No such blob, or not any more."""

    code = "BLOB_MISSING"


class BlobTooLarge(CallerError):
    """The content has more bytes than it may."""

    code = "BLOB_TOO_LARGE"


class BlobMismatch(CallerError):
    """What was uploaded differs in size or digest from what was announced."""

    code = "BLOB_MISMATCH"


class UploadTooSlow(CallerError):
    """The content took too long to be written."""

    code = "UPLOAD_TOO_SLOW"


class BudgetExhausted(CallerError):
    """A budget has no room for it until its window is over."""

    code = "BUDGET_EXHAUSTED"
    retryable = True

    def __init__(  # noqa: PLR0913 - what a caller needs to know of the budget
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
        """In how many seconds the window is over."""


class HoldExhausted(BudgetExhausted):
    """A job has used what was held for it, and a budget lets it use no more."""


class WorkError(BackburnerError):
    """The work was tried and failed. Raise a subclass from a handler."""

    code = "WORK_FAILED"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.problem_code = code or self.code


class TransientError(WorkError):
    """Worth another attempt."""

    code = "TRANSIENT"
    retryable = True


class Throttled(TransientError):
    """A provider asked to come back later; with `retry_after` it costs no attempt."""

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
    """Another attempt would fail the same way."""

    code = "PERMANENT"


class OverBudget(PermanentError):
    """The job has used all that was held for it, and its budget has nothing left."""

    code = "OVER_BUDGET"


class AnswerTruncated(PermanentError):
    """A model's answer ends where its limit of tokens was reached; `text` is that."""

    code = "AI_TRUNCATED"

    def __init__(self, message: str, *, text: str = "") -> None:
        super().__init__(message)
        self.text = text


class ClaimLost(BackburnerError):
    """The job is no longer held by this worker; its transaction was rolled back."""

    code = "CLAIM_LOST"

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"job {job_id} is no longer held by this worker: nothing was committed"
        )


class TransactionTooLong(BackburnerError):
    """A transaction body took longer than allowed; nothing of it was committed."""

    code = "TRANSACTION_TOO_LONG"
    retryable = True

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the transaction was rolled back: its body took longer than {seconds:g} s;"
            " do less in one transaction, or raise BACKBURNER_TRANSACTION_SECONDS"
        )


class StoreUnavailable(BackburnerError):
    """The database cannot be read or written just now."""

    code = "STORE_UNAVAILABLE"
    retryable = True


class StoreFull(StoreUnavailable):
    """The database has no room left."""

    code = "STORE_FULL"


class BrokerUnavailable(BackburnerError):
    """The message broker cannot be had just now; the store is the truth meanwhile."""

    code = "BROKER_UNAVAILABLE"
    retryable = True


class ConfigurationError(BackburnerError):
    """Backburner cannot start as it is set up."""

    code = "CONFIGURATION"
