"""
Validates the completion that a caller attaches to a job.

The whole completion job is prepared at submission, because the process that ends the
job may not know its capability.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from backburner.domain.blobs.blob import LARGE
from backburner.domain.errors import (
    FieldError,
    InvalidInput,
    Problem,
    UnknownCapability,
    within,
)
from backburner.domain.guard import Policy
from backburner.domain.jobs.completion import JOB
from backburner.domain.jobs.job import JobState
from backburner.engine.flow import NOTHING
from backburner.engine.registry import Capability
from backburner.engine.submit import guarding

MOST_FAULTS: Final = 20
_FIELDS: Final = frozenset({"capability", "input"})
_FAILED_SAMPLE: Final = {"error": {"code": "FAILED", "message": "it failed"}}
_BY_VALUE: Final = frozenset({"value_error", "assertion_error"})
"""Errors that the capability's own validators raise."""


class JobEnd(BaseModel):
    """
    The end of a job: the field `job` of its completion's input.

    To validate the output, make a subclass that gives it a type: `output: Report | None
    = None`.
    """

    id: str
    capability: str
    state: JobState
    """`succeeded`, `failed` or `cancelled`."""
    generation: int
    """How often the job was retried by hand."""
    output: Any = None
    """What the job returned, if it succeeded."""
    error: Problem | None = None
    """Why it ended, if it did not succeed."""


def parts(asked: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the capability and the input that a completion names, or `NOTHING`."""
    capability = asked.get("capability")
    if not isinstance(capability, str | Capability) or asked.keys() - _FIELDS:
        raise _refused("completion", "must have a capability and may have an input")
    return capability, asked.get("input", NOTHING)


def said(asked: Mapping[str, Any] | None) -> Any:
    """Return a completion as requested, to compare repeated requests."""
    if asked is None:
        return None
    capability, value = parts(asked)
    name = capability if isinstance(capability, str) else capability.name
    return [name, *([] if value is NOTHING else [_object(value)])]


def written(
    asked: Mapping[str, Any],
    find: Callable[[Any], Capability[Any, Any]],
    *,
    key: str | None,
) -> dict[str, Any]:
    """Validate a job's completion and return its stored form."""
    capability, value = parts(asked)
    try:
        found = find(capability)
        given = _object(value)
        _check(found, given)
        marks = guarding.tags(found, orjson.dumps(given).decode())
    except (InvalidInput, UnknownCapability) as error:
        raise within("completion", error) from None
    more = {
        "input": given,
        "tokens": None if callable(found.tokens) else found.tokens,
        "model": found.model,
        "key": key,
        "tags": marks,
    }
    return {
        "capability": found.name,
        "queue": found.queue,
        "max_attempts": found.retry.max_attempts,
        **{name: value for name, value in more.items() if value not in (None, {}, ())},
    }


def _object(value: Any) -> dict[str, Any]:
    """Return the input as a JSON object, to which `job` is added."""
    if value is NOTHING:
        return {}
    try:
        text = to_json(value, by_alias=True)
    except PydanticSerializationError:
        raise InvalidInput("the input cannot be written as JSON") from None
    given = orjson.loads(text)
    if not isinstance(given, dict):
        raise _refused("input", f"must be an object: the field {JOB!r} is added to it")
    if JOB in given:
        raise _refused(f"input.{JOB}", "leave it out: the engine adds it")
    if len(text) > LARGE:
        raise _refused("input", f"has {len(text)} bytes, at most {LARGE} are allowed")
    return given


def _check(found: Capability[Any, Any], given: Mapping[str, Any]) -> None:
    """Refuse an input that the capability cannot accept, whatever the job's end."""
    if found.guard is Policy.BLOCK:
        raise _refused(
            "capability",
            f"{found.name!r} refuses prompts, and what a job returns cannot be judged "
            "now: have a completion of your own submit it",
        )
    about = {"id": "job_1", "capability": found.name, "generation": 0}
    for more in ({"state": "succeeded", "output": None}, _FAILED_SAMPLE):
        sample = {**given, JOB: {**about, "state": "failed", **more}}
        try:
            found.input.validate_json(orjson.dumps(sample))
        except ValidationError as error:
            faults = [fault for fault in _faults(error) if not _may_fit(fault)]
            if faults:
                raise _misfit(found, faults) from None


def _faults(error: ValidationError) -> list[Any]:
    return [*error.errors(include_url=False, include_context=False)]


def _may_fit(fault: Mapping[str, Any]) -> bool:
    """Say whether the input can only be validated when the job has ended."""
    field, *rest = fault["loc"] or ("",)
    is_own = fault["type"] in _BY_VALUE and not rest
    return field == JOB and ("output" in rest or is_own)


def _misfit(found: Capability[Any, Any], faults: list[Any]) -> InvalidInput:
    fields = [FieldError.of(fault, "input") for fault in faults[:MOST_FAULTS]]
    listed = "; ".join(f"{field.path}: {field.message}" for field in fields[:3])
    return InvalidInput(
        f"the input, with the field {JOB!r} that says how the job ended, does not "
        f"match capability {found.name!r}: {listed}",
        fields,
    )


def _refused(path: str, message: str) -> InvalidInput:
    return InvalidInput(f"{path}: {message}", [FieldError(path, message)])
