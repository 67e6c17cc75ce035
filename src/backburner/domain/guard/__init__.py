"""Prompt injection: what it looks like, and how much a text looks like it."""

from backburner.domain.guard.verdict import (
    BLOCKED_FROM,
    FLAGGED_FROM,
    MOST_READ,
    Policy,
    Verdict,
    judge,
    judge_all,
)

__all__ = [
    "BLOCKED_FROM",
    "FLAGGED_FROM",
    "MOST_READ",
    "Policy",
    "Verdict",
    "judge",
    "judge_all",
]
