"""Types of model answers: JSON schemas for the prompt, validation of the answer."""

from functools import lru_cache
from typing import Any, Final

import orjson
from pydantic import TypeAdapter, ValidationError

from backburner.domain.ai import Trouble, found_json

MOST_FAULTS: Final = 10
"""How many errors of an answer are listed for the model."""
INSTRUCTION: Final = (
    "Answer with one JSON value that matches this JSON schema, and with nothing else: "
    "no prose, no Markdown.\n"
)


class Shape:
    """A type that an answer must have."""

    def __init__(self, into: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(into)
        self.schema = self._adapter.json_schema()
        self.instruction = INSTRUCTION + orjson.dumps(self.schema).decode()

    def read(self, text: str) -> Any:
        """Return the answer as a value; raise `ValueError` if it does not match."""
        return self._adapter.validate_json(found_json(text))


_known = lru_cache(maxsize=256)(Shape)


def shape_of(into: Any) -> Shape:
    """Return the shape of a type, cached if the type is hashable."""
    try:
        return _known(into)
    except TypeError:  # an annotated type may be unhashable
        return Shape(into)


def trouble_of(error: ValueError) -> Trouble:
    """Return whether an answer is invalid JSON, or JSON that does not match."""
    is_shape = isinstance(error, ValidationError) and not any(
        found["type"] == "json_invalid" for found in error.errors(include_url=False)
    )
    return Trouble.SCHEMA_VIOLATION if is_shape else Trouble.INVALID_JSON


def mistakes(error: ValueError, most: int = MOST_FAULTS) -> str:
    """Describe the errors of a value, without repeating it."""
    if not isinstance(error, ValidationError):
        return str(error)
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    named = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in errors[:most]]
    return "; ".join(named)
