"""Checks that JSON from outside can be stored."""

from typing import Any, Final

MAX_DEPTH: Final = 64


def odd(value: Any) -> str | None:
    """Return why a value parsed from JSON cannot be stored; `None` if it can."""
    level, depth = [value], 0
    while level:
        if any(isinstance(item, str) and "\x00" in item for item in level):
            return "has a NUL character in a text"
        level = [inner for item in level for inner in _inside(item)]
        depth += 1
        if depth >= MAX_DEPTH and any(isinstance(i, (dict, list)) for i in level):
            return f"is nested deeper than {MAX_DEPTH} levels"
    return None


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list) else []
