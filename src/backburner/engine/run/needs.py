"""The outputs of prerequisites that a step receives."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from backburner.domain.blobs.blob import MARK
from backburner.domain.errors import PermanentError
from backburner.domain.jobs.job import JobState, Need
from backburner.engine.blobs.payloads import Payloads


class StepInput(NamedTuple):
    """The result of a prerequisite."""

    job_id: str
    state: JobState
    output: Any
    """Its output as plain data; `None` if it did not succeed."""
    error: Mapping[str, Any] | None
    """Its error, if it did not succeed."""


async def whole(needs: Sequence[Need], payloads: Payloads) -> Sequence[Need]:
    """Return needs with the outputs that are stored in the blob store."""
    return [
        need._replace(output=await payloads.text(need.output or ""))
        if is_apart(need.output)
        else need
        for need in needs
    ]


def is_apart(text: str | None) -> bool:
    """Say whether a text is stored in the blob store."""
    return text is not None and text.startswith(MARK)


def input_of(needs: Sequence[Need]) -> str:
    """Return the input of a step that has none of its own: the outputs it needs."""
    if len(needs) == 1 and needs[0].output is not None:
        return needs[0].output
    if not needs or any(need.output is None for need in needs):
        raise PermanentError("a prerequisite has no output, which is needed as input")
    outputs = {need.step: orjson.Fragment(need.output or "") for need in needs}
    return orjson.dumps(outputs).decode()


def given(needs: Sequence[Need]) -> dict[str, StepInput]:
    """Return the prerequisites' results as the handler sees them, by step."""
    return {
        need.step: StepInput(
            need.job_id,
            need.state,
            None if need.output is None else orjson.loads(need.output),
            need.error,
        )
        for need in needs
    }
