"""Distinguishes a lack of memory from other failures."""

from pathlib import Path
from typing import Final

from backburner_extractors.errors import ExtractionError
from backburner_extractors.limits import Limits

WORDS: Final = (b"memory", b"bad_alloc")
"""Messages of libraries and tesseract about a lack of memory."""
STATUS: Final = Path("/proc/self/status")
NEAR: Final = 0.8
"""Share of the limit above which a failure counts as a lack of memory."""


def is_about_memory(last_words: bytes) -> bool:
    """Return whether a program's last output is about memory."""
    return any(word in last_words.lower() for word in WORDS)


def is_nearly_used_up(limits: Limits) -> bool:
    """
    Return whether this process has used most of its memory limit.

    Some libraries report a lack of memory as any other error.
    """
    return _own("VmPeak") >= NEAR * limits.memory_bytes


def has_used_up(child_peak: int, limits: Limits) -> bool:
    """
    Return whether a child process with this peak, in bytes, used most of its limit.

    The kernel counts the parent's memory as the child's until the child's program
    starts, so a peak below that of this process is not meaningful.
    """
    return child_peak > _own("VmHWM") and child_peak >= NEAR * limits.memory_bytes


def _own(field: str) -> int:
    """Return a value from Linux's status of this process, in bytes; elsewhere 0."""
    if not STATUS.exists():
        return 0
    figures = STATUS.read_text().partition(f"{field}:")[2].split()
    return int(figures[0]) << 10


def out_of_memory(limits: Limits) -> ExtractionError:
    """Return the error for a reached memory limit."""
    return ExtractionError(
        "OUT_OF_MEMORY",
        f"Reading the file takes more than {limits.memory_bytes >> 20} MiB of memory.",
    )
