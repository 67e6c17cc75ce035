"""Applies the prompt guard to inputs when jobs are submitted."""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from backburner.domain.errors import PermanentError, PromptRefused
from backburner.domain.guard import Policy, judge_all
from backburner.engine.observability import telemetry
from backburner.engine.registry import Capability
from backburner.ports.log import log

FLAGGED: Final = "guard:flagged"
"""The tag of a job whose input looks like an injection and was let through."""


def tags(found: Capability[Any, Any], text: str) -> tuple[str, ...]:
    """Check a job's input with the guard; refuse it or return the tags for it."""
    if found.guard is Policy.OFF:
        return ()
    verdict = judge_all(_texts(orjson.loads(text)))
    if not verdict.is_flagged:
        return ()
    is_refused = verdict.is_blocked and found.guard is Policy.BLOCK
    telemetry.guarded(found.name, is_refused=is_refused)
    if is_refused:
        log.info(
            "prompt refused",
            capability=found.name,
            score=verdict.score,
            rules=",".join(verdict.rules),
        )
        raise PromptRefused(verdict.score, verdict.rules)
    return (FLAGGED,)


def check_fed(found: Capability[Any, Any], text: str) -> None:
    """Check a step's input from its prerequisites, unknown when it was submitted."""
    try:
        tags(found, text)
    except PromptRefused as refused:
        raise PermanentError(str(refused), code=refused.code) from None


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value, and keys that are not plain names."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, dict):
            waiting += reversed(found.values())
            waiting += [key for key in found if " " in key]
        elif isinstance(found, list):
            waiting += reversed(found)
