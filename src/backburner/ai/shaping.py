"""Creates values that match a JSON schema, for the mock."""

from collections.abc import Mapping, Sequence
from datetime import datetime, time
from typing import Any, Final

from backburner.ai.sentences import Task

DEEPEST: Final = 12
TASK: Final = frozenset({"title", "priority", "subtasks"})
LAST_MINUTE: Final = time(23, 59)
_LEVELS: Final = ("low", "medium", "high", "urgent")
_ALSO: Final = {"medium": ("normal",), "urgent": ("critical", "highest", "high")}

Schema = Mapping[str, Any]


def is_task(schema: Schema) -> bool:
    """Return whether a schema describes a task."""
    return set(schema.get("properties", ())) >= TASK


def is_task_list(schema: Schema) -> bool:
    """Return whether a schema describes several tasks, in a field `tasks`."""
    item = _item(schema)
    return {"title", "subtasks"} <= set(item.get("properties", ()))


def shaped_list(tasks: Sequence[Task], schema: Schema, now: datetime) -> dict[str, Any]:
    """Convert tasks to match their schema."""
    item = {**_item(schema), "$defs": schema.get("$defs", {})}
    return {"tasks": [shaped(task, item, now) for task in tasks]}


def _item(schema: Schema) -> Schema:
    listed = _resolved(schema.get("properties", {}).get("tasks", {}), schema)
    return _resolved(listed.get("items", {}), schema)


def shaped(task: Task, schema: Schema, now: datetime) -> dict[str, Any]:
    """Convert a task to match its schema."""
    fields = schema["properties"]
    values: dict[str, Any] = {
        "title": task.title,
        "description": task.description,
        "summary": task.description,
        "priority": _level(
            task.priority, _resolved(fields.get("priority", {}), schema)
        ),
        "category": task.category,
        "projectHint": task.category,
        "recurrence": task.recurrence,
        "subtasks": _steps(task.steps, _resolved(fields["subtasks"], schema), schema),
    }
    for name in ("dueDate", "due_date", "deadline"):
        if name in fields and task.day is not None:
            values[name] = _due(task, _resolved(fields[name], schema), now)
    return {
        n: _cut(v, _resolved(fields[n], schema))
        for n, v in values.items()
        if n in fields and v is not None
    }


def _cut(value: Any, schema: Schema) -> Any:
    return value[: schema.get("maxLength")] if isinstance(value, str) else value


def _due(task: Task, schema: Schema, now: datetime) -> str:
    assert task.day is not None  # noqa: S101 - the caller checks it
    wanted = schema.get("format")
    if wanted == "date" or (wanted is None and task.hour is None):
        return task.day.isoformat()
    return datetime.combine(task.day, task.hour or LAST_MINUTE, now.tzinfo).isoformat()


def _level(level: str, schema: Schema) -> Any:
    allowed = schema.get("enum")
    if schema.get("type") == "integer":
        return _LEVELS.index(level) + 1
    if not isinstance(allowed, Sequence):
        return level
    by_name = {str(value).lower(): value for value in allowed}
    names = (level, *_ALSO.get(level, ()), "medium", "normal")
    return next((by_name[name] for name in names if name in by_name), allowed[0])


def _steps(steps: Sequence[str], schema: Schema, root: Schema) -> list[Any]:
    item = _resolved(schema.get("items", {}), root)
    fields = item.get("properties", {})
    if "title" not in fields:
        return list(steps)
    has_order = "order" in fields
    return [
        {"title": step, "order": n} if has_order else {"title": step}
        for n, step in enumerate(steps)
    ]


def sample(
    schema: Schema, text: str, root: Schema | None = None, depth: int = 0
) -> Any:
    """Create a sample value for a simple schema; strings are taken from `text`."""
    root = schema if root is None else root
    schema = _resolved(schema, root)
    if "default" in schema:
        return schema["default"]
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    make = _MAKERS.get(str(schema.get("type")))
    return None if make is None or depth > DEEPEST else make(schema, text, root, depth)


def _object(schema: Schema, text: str, root: Schema, depth: int) -> dict[str, Any]:
    fields = schema.get("properties", {})
    needed = schema.get("required", ())
    return {n: sample(fields.get(n, {}), text, root, depth + 1) for n in needed}


def _list(schema: Schema, text: str, root: Schema, depth: int) -> list[Any]:
    count = max(int(schema.get("minItems", 0)), 1 if depth == 0 else 0)
    item = schema.get("items", {})
    return [sample(item, text, root, depth + 1) for _ in range(min(count, 10))]


def _string(schema: Schema, text: str, root: Schema, depth: int) -> str:
    del root, depth
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    least, most = int(schema.get("minLength", 0)), int(schema.get("maxLength", 500))
    return (text.strip() or "mock")[:most].ljust(least, ".")


def _number(schema: Schema, text: str, root: Schema, depth: int) -> Any:
    del text, root, depth
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    if least is None:
        return min(0, schema.get("maximum", 0))
    return least + (1 if "exclusiveMinimum" in schema else 0)


_MAKERS: Final = {
    "object": _object,
    "array": _list,
    "string": _string,
    "integer": _number,
    "number": _number,
    "boolean": lambda *_: False,
}
_FORMATS: Final = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "uri": "https://example.org/",
    "email": "mock@example.org",
}


def _resolved(schema: Schema, root: Schema) -> Schema:
    """Follow references; of alternatives, use the first that is not null."""
    for _ in range(DEEPEST):
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref.startswith("#/"):
            found: Any = root
            for part in ref[2:].split("/"):
                found = found.get(part, {})
            schema = found
            continue
        options = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if not options:
            break
        schema = next((o for o in options if o.get("type") != "null"), {})
    return schema
