"""Results of steps within a handler, and the keys by which a later run finds them."""

from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple

from backburner.domain.jobs.job import Instant

NAMED: Final = "step"
"""The kind of a step that the handler names itself; others are kinds of model calls."""
DRAFT: Final = "draft"
"""The kind of an answer that did not match its type, while it is being corrected."""
FORKED_STEP: Final = "fork"
"""How the keys of results begin that are used in their order, whatever is asked."""
FORK_TAG: Final = "forked-from:"
"""A fork has this tag, with the id of the job that it is a fork of."""
SLEEP: Final = "sleep"
CHILD: Final = "run"
NOT_CALLS: Final = frozenset({NAMED, SLEEP, CHILD, DRAFT})
"""The kinds that are no model calls."""
MAX_STEP_NAME: Final = 200
MAX_STEPS: Final = 10_000
"""How many results are stored for one job."""


class StepResult(NamedTuple):
    """The result of a step, as it is stored for the claim that computed it."""

    job: int
    token: str
    key: str
    kind: str
    name: str
    """The name that the handler gave, or what people see of a model call."""
    epoch: int
    """The run that computed it: the number of its `job.started`."""
    at: Instant
    result: str
    """JSON, or a reference to it; empty for a step that is being begun."""
    expected: int = 0
    """Tokens that a model call is expected to read."""
    is_open: bool = False
    """Whether it is being begun."""
    is_concurrent: bool = False
    """Whether another step was under way at the same time, not around it."""


class StoredStep(NamedTuple):
    """The stored result of a step."""

    key: str
    kind: str
    name: str
    epoch: int
    at: Instant
    result: str
    """JSON, or a reference to it; empty if it was not asked for."""
    size: int = 0
    """How many characters `result` has in its row; 0 if the step was only begun."""
    expected: int = 0
    is_open: bool = False
    """Whether it was begun and nothing is known of its end."""
    doubts: int = 0
    """How many earlier runs began it and were lost before it ended."""
    is_concurrent: bool = False

    @property
    def is_top(self) -> bool:
        """Whether it is a step of the handler itself, not one within another step."""
        if self.kind == NAMED:
            return self.key == named_key([self.name])
        return self.key.count("/") == 1


class InDoubt(StrEnum):
    """What to do about a step that was begun by a run that was lost."""

    RETRY = "retry"
    """Run it again."""
    FAIL = "fail"
    """Fail the job with `STEP_IN_DOUBT`."""
    ASK_PERSON = "ask_person"
    """Ask a person whether it happened."""


def named_key(path: Sequence[str]) -> str:
    """Return the key of a named step; `path` ends with its name, within other steps."""
    return "/".join([NAMED, *path])


def request_key(path: Sequence[str], kind: str, request: bytes, occurrence: int) -> str:
    """
    Return the key of a model call.

    It is the hash of the request and its occurrence number, so concurrent calls may be
    made in any order.
    """
    digest = sha256(request).hexdigest()
    return "/".join([kind, *path, f"{digest}:{occurrence}"])


def fork_key(n: int) -> str:
    """Return the key of the n-th step of a job that is a fork with another input."""
    return f"{FORKED_STEP}/{n}"


def draft_key(key: str) -> str:
    """Return the key of the answer that a model call is asked to correct."""
    return f"{DRAFT}/{key}"
