"""Limits that a process sets on itself before it reads an untrusted file."""

import ctypes
import os
import resource
import signal
import sys
from typing import Final

from backburner_extractors.limits import Limits

PR_SET_PDEATHSIG: Final = 1
PR_SET_NO_NEW_PRIVS: Final = 38
MOST_FILES: Final = 64
GRACE_SECONDS: Final = 5


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def die_with(parent: int) -> None:
    """Do so for the parent with this process id; exit if it has already ended."""
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def confine(limits: Limits) -> None:
    """
    Limit memory and CPU time, and forbid core dumps, files and new privileges.

    On systems without PR_SET_PDEATHSIG, an alarm ends a process whose parent has died.
    """
    _limit(resource.RLIMIT_AS, limits.memory_bytes)
    _limit(resource.RLIMIT_CPU, limits.cpu_seconds, hard=limits.cpu_seconds + 1)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NOFILE, MOST_FILES)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_seconds + GRACE_SECONDS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _limit(kind: int, most: int, hard: int | None = None) -> None:
    """Set a limit, but never above the one that the process already has."""
    _, given = resource.getrlimit(kind)
    highest = sys.maxsize if given == resource.RLIM_INFINITY else given
    hard = min(most if hard is None else hard, highest)
    resource.setrlimit(kind, (min(most, hard), hard))
