"""Stored results of steps within a handler, and the keys that identify them."""

from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple

from backburner.domain.jobs.job import Instant

NAMED: Final = "step"
"""The kind of a step that the handler names; other kinds are model calls."""
DRAFT: Final = "draft"
"""The kind of an answer that did not match its type and is being corrected."""
FORKED_STEP: Final = "fork"
"""The prefix of keys of results that a fork reuses in order, for any request."""
FORK_TAG: Final = "forked-from:"
"""The prefix of a fork's tag; the id of the original job follows."""
SLEEP: Final = "sleep"
CHILD: Final = "run"
NOT_CALLS: Final = frozenset({NAMED, SLEEP, CHILD, DRAFT})
"""The kinds that are not model calls."""
MAX_STEP_NAME: Final = 200
MAX_STEPS: Final = 10_000
"""How many results are stored for one job."""


class StepResult(NamedTuple):
    """The result of a step, to be stored under the claim that computed it."""

    job: int
    token: str
    key: str
    kind: str
    name: str
    """The name given by the handler, or a description of a model call."""
    epoch: int
    """The run that computed it: the number of its `job.started` event."""
    at: Instant
    result: str
    """JSON, or a reference to a blob; empty while the step is open."""
    expected: int = 0
    """How many tokens a model call is expected to read."""
    is_open: bool = False
    """Whether the step was begun and has not ended."""
    is_concurrent: bool = False
    """Whether another step that does not contain it was open at the same time."""
    duration_ms: int | None = None
    """How long it took to compute, waits included; `None` if it is open or unknown."""


class StoredStep(NamedTuple):
    """A result of a step as it was stored."""

    key: str
    kind: str
    name: str
    epoch: int
    at: Instant
    result: str
    """JSON, or a reference to a blob; empty if it was not requested."""
    size: int = 0
    """The length of `result` in its row, in characters; 0 if the step is open."""
    expected: int = 0
    is_open: bool = False
    """Whether the step was begun and its end is unknown."""
    doubts: int = 0
    """How many earlier runs began it and were lost before it ended."""
    is_concurrent: bool = False
    duration_ms: int | None = None
    """How long it took to compute; `None` if it is open or unknown."""

    @property
    def is_top(self) -> bool:
        """Whether it is not nested in another step."""
        if self.kind == NAMED:
            return self.key == named_key([self.name])
        return self.key.count("/") == 1


class InDoubt(StrEnum):
    """What to do with a step that a lost run had begun."""

    RETRY = "retry"
    """Run it again."""
    FAIL = "fail"
    """Fail the job with `STEP_IN_DOUBT`."""
    ASK_PERSON = "ask_person"
    """Ask a person whether the step took effect."""


def named_key(path: Sequence[str]) -> str:
    """Return the key of a named step; `path` is its name after those around it."""
    return "/".join([NAMED, *path])


def request_key(path: Sequence[str], kind: str, request: bytes, occurrence: int) -> str:
    """
    Return the key of a model call.

    It contains the hash of the request and its occurrence number, so concurrent calls
    may be made in any order.
    """
    digest = sha256(request).hexdigest()
    return "/".join([kind, *path, f"{digest}:{occurrence}"])


def fork_key(n: int) -> str:
    """Return the key of the n-th step of a fork with another input."""
    return f"{FORKED_STEP}/{n}"


def draft_key(key: str) -> str:
    """Return the key of an answer that a model call is asked to correct."""
    return f"{DRAFT}/{key}"
