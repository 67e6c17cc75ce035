"""
Checks whether the output type of one step matches the input of another.

It refuses only certain mismatches, because two types may be compatible in ways that
their schemas do not show: numbers written as text pass, and types with their own
validators are not checked. Lists are compared by their items, although an empty list
would always fit.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

Schema = Mapping[str, Any]

DEEPEST: Final = 8
_FOREIGN: Final = frozenset({"metadata", "default"})
"""Schema keys that do not affect the type."""
_SCALARS: Final = frozenset({"integer", "number", "boolean", "string"})
_TAKES: Final[Mapping[str, frozenset[str]]] = {
    "integer": _SCALARS,
    "number": _SCALARS,
    "boolean": _SCALARS,
}
"""The types that are converted to each type; other types accept only themselves."""
_REPLACING: Final = frozenset({"function-wrap", "function-plain"})
_CONVERTING: Final = _REPLACING | {"function-before"}
_LENIENT: Final = ("populate_by_name", "validate_by_name", "coerce_numbers_to_str")


def incompatibility(
    gives: Mapping[str, TypeAdapter[Any]], takes: TypeAdapter[Any]
) -> str | None:
    """
    Return why outputs, by step, cannot be an input; `None` if they may fit.

    A single output is used as it is, several as an object of them.
    """
    taken = _input(takes)
    if taken is None:
        return None
    if len(gives) == 1:
        [output] = gives.values()
        return _compared(_output(output), taken, taken, "it")
    whole = _at(taken, taken.get("$defs", {}))
    if whole.get("type", "object") != "object":
        return f"it is an object of {len(gives)} outputs, not {whole['type']}"
    return _missing(gives, whole) or _unfit(gives, whole, taken)


def _missing(gives: Mapping[str, Any], taken: Schema) -> str | None:
    for name in taken.get("required", ()):
        if name not in gives:
            return f"it has no field {name!r}"
    return _surplus(gives, taken, "it")


def _unfit(
    gives: Mapping[str, TypeAdapter[Any]], taken: Schema, root: Schema
) -> str | None:
    wants = taken.get("properties", {})
    for name in gives.keys() & wants.keys():
        found = _compared(_output(gives[name]), wants[name], root, f"it.{name}")
        if found is not None:
            return found
    return None


def _compared(
    given: Schema | None, taken: Schema, root: Schema, path: str
) -> str | None:
    if given is None:
        return None
    return _Comparison(given, root).incompatibility(given, taken, path, 0)


class _Comparison:
    """Two schemas and their definitions."""

    def __init__(self, given: Schema, taken: Schema) -> None:
        self._given = given.get("$defs", {})
        self._taken = taken.get("$defs", {})

    def incompatibility(
        self, given: Schema, taken: Schema, path: str, depth: int
    ) -> str | None:
        given, taken = _at(given, self._given), _at(taken, self._taken)
        is_a, wants = given.get("type"), taken.get("type")
        if depth > DEEPEST or not isinstance(is_a, str) or not isinstance(wants, str):
            return None  # too deep, a union, or any type
        if not _may_be(is_a, wants, taken):
            return f"{path} is of type {is_a}, not {wants}"
        if is_a == wants == "object":
            return self._fields(given, taken, path, depth)
        if is_a == wants == "array" and "items" in given and "items" in taken:
            return self.incompatibility(
                given["items"], taken["items"], f"{path}[]", depth + 1
            )
        return None

    def _fields(
        self, given: Schema, taken: Schema, path: str, depth: int
    ) -> str | None:
        has, wants = given.get("properties", {}), taken.get("properties", {})
        always, needed = given.get("required", ()), taken.get("required", ())
        is_closed = has and given.get("additionalProperties", False) is False
        for name in needed:
            if is_closed and name not in has:
                return f"{path} has no field {name!r}"
        for name in has.keys() & wants.keys():
            if name in always or name in needed:
                place = f"{path}.{name}"
                found = self.incompatibility(has[name], wants[name], place, depth + 1)
                if found is not None:
                    return found
        return _surplus(always, taken, path)


def _surplus(has: Iterable[str], taken: Schema, path: str) -> str | None:
    if taken.get("additionalProperties") is False:
        for name in has:
            if name not in taken.get("properties", {}):
                return f"{path} has an unexpected field {name!r}"
    return None


def _may_be(is_a: str, wants: str, taken: Schema) -> bool:
    if is_a == wants or is_a in _TAKES.get(wants, ()):
        return True
    if wants == "string":  # a time may be a number
        return "format" in taken and is_a in {"integer", "number"}
    # A named tuple is also taken by the names of its fields.
    return wants == "array" and is_a == "object" and "prefixItems" in taken


def _at(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    while "$ref" in schema:
        schema = definitions.get(schema["$ref"].rpartition("/")[2], {})
    return schema


@lru_cache(maxsize=1024)
def _input(adapter: TypeAdapter[Any]) -> Schema | None:
    """Return the accepted schema; `None` if it is unknown."""
    if any(map(_is_lenient, _parts(adapter.core_schema))):
        return None
    return _schema(adapter, "validation")


@lru_cache(maxsize=1024)
def _output(adapter: TypeAdapter[Any]) -> Schema | None:
    """Return the produced schema; `None` if it is unknown."""
    # A serializer is written down like a validator.
    if any(_kind(part) in _REPLACING for part in _parts(adapter.core_schema)):
        return None
    return _schema(adapter, "serialization")


def _schema(adapter: TypeAdapter[Any], mode: Any) -> Schema | None:
    try:
        return adapter.json_schema(mode=mode)
    except PydanticUserError:
        return None


def _is_lenient(part: Mapping[str, Any]) -> bool:
    """Return whether a part of a type accepts more than its schema shows."""
    if _kind(part) in _CONVERTING or isinstance(part.get("validation_alias"), list):
        return True
    config = part.get("config") or {}
    return any(config.get(name) for name in _LENIENT)


def _kind(part: Mapping[str, Any]) -> str:
    kind = part.get("type")  # in a table of fields, a field may be named `type`
    return kind if isinstance(kind, str) else ""


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every part of a type's Pydantic core schema."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            yield part
            waiting += [part[name] for name in part if name not in _FOREIGN]
        elif isinstance(part, list | tuple):
            waiting += part
