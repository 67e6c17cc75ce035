"""Stored model answers: usable ones, and drafts that are being corrected."""

from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel

from backburner.engine.models.asking import Asker, Called
from backburner.engine.run.steps import StepJournal

T = TypeVar("T")


class Answered(BaseModel, Generic[T]):
    """A model's answer as it is stored, with the calls that produced it."""

    value: T
    calls: list[Called]


TEXT: Final = Answered[str]


class StepDraft:
    """
    An answer that did not match its type, stored until it is corrected.

    A run that is interrupted between the two calls pays for the first one only once. If
    the correction does not match either, the draft is deleted.
    """

    def __init__(self, steps: StepJournal, asker: Asker, call: str) -> None:
        """Create it for the step with the key `call`."""
        self._steps = steps
        self._asker = asker
        self._call = call
        self._begun = len(asker.calls)

    async def read(self) -> str | None:
        """Return the answer that an earlier run received but did not correct."""
        draft: Any = await self._steps.draft(self._call, TEXT)
        if draft is None:
            return None
        self._asker.recall(draft.calls)
        return str(draft.value)

    async def keep(self, text: str) -> None:
        """Store an answer with its usage; return when it is stored."""
        calls = [*self._asker.calls[self._begun :]]
        answered = TEXT(value=text, calls=calls)
        await self._steps.keep_draft(self._call, answered, TEXT)

    async def drop(self) -> None:
        """Discard the answer."""
        await self._steps.drop_draft(self._call)
