"""
The states of files and batches, and how the events of jobs move them. Pure.

A file is uploaded and confirmed; from then on its state is that of its jobs.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

PENDING: Final = "pending_upload"
UPLOADED: Final = "uploaded"
QUEUED: Final = "queued"
EXTRACTING: Final = "extracting"
CHUNKING: Final = "chunking"
EMBEDDING: Final = "embedding"
READY: Final = "ready"
FAILED: Final = "failed"

PROCESSING: Final = "processing"
COMPLETED: Final = "completed"

UNCONFIRMED: Final = (PENDING, UPLOADED)
STAGES: Final = (EXTRACTING, CHUNKING, EMBEDDING)
ENDED: Final = (READY, FAILED)
COUNTED: Final = (QUEUED, *STAGES, *ENDED)
"""The states that a summary counts, in this order."""

STAGE_OF: Final[Mapping[str, str]] = {
    "extract": EXTRACTING,
    "chunk": CHUNKING,
    "embed": EMBEDDING,
}
"""The stage, by the first word of a step's name, such as `extract:file_1`."""
_AFTER: Final = {EXTRACTING: CHUNKING, CHUNKING: EMBEDDING, EMBEDDING: READY}


class Step(NamedTuple):
    """The file and the stage of a job."""

    stage: str
    file_id: str


def step_name(kind: str, file_id: str) -> str:
    """Return the name and tag of a step: `extract:{fileId}`."""
    return f"{kind}:{file_id}"


def step_of(name: str | None) -> Step | None:
    """Read a step's name; `None` if it is not one of a file."""
    kind, _, file_id = (name or "").partition(":")
    return Step(STAGE_OF[kind], file_id) if kind in STAGE_OF and file_id else None


def resumed(stage: str) -> str:
    """Return the state of a file whose failed stage is retried."""
    return QUEUED if stage == EXTRACTING else stage


def moved(status: str, stage: str, event: str, data: Mapping[str, Any]) -> str | None:
    """
    Return a file's new state after an event of a stage's job.

    Returns `None` if the event changes nothing, for example because the file has ended.
    """
    if event in ("job.queued", "job.scheduled"):
        is_retry = status == FAILED and "generation" in data
        return resumed(stage) if is_retry else None
    if status in ENDED or status in UNCONFIRMED:
        return None
    if event == "job.started":
        return EXTRACTING if (status, stage) == (QUEUED, EXTRACTING) else None
    if event == "job.succeeded":
        return _AFTER[stage]
    return FAILED if event in ("job.failed", "job.cancelled") else None
