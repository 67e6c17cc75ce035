"""
Models of the shapes that the server sends, for OpenAPI and for tests.

A model has the fields of its shape in `backburner.shapes`, described by the docstrings
there. Responses are not validated: the writers in `http` fill the shapes.
"""

import ast
import inspect
import sys
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from operator import or_
from types import GenericAlias, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pydantic import BaseModel, ConfigDict, Field, create_model

_NAMES: Final = {
    "Budgets": "BudgetList",
    "Lane": "LaneShown",
    "StoredStep": "StepView",
    **{
        name: f"{name}View"
        for name in (
            *("Attempt", "Batch", "Budget", "Counts", "Endpoint", "Event"),
            *("FailureGroup", "Flow", "Job", "Keep", "Need", "Question", "Queue"),
            *("Quote", "Rate", "Receipt", "Schedule", "SecretEndpoint", "Signal"),
            *("Step", "Totals", "Usage", "Wait"),
        )
    },
}
"""Shapes whose names in OpenAPI differ from those in the code."""

_models: Final[dict[type, type[BaseModel]]] = {}


def model_of(
    shape: type, examples: Sequence[Any] = (), **more: Mapping[str, Any]
) -> type[BaseModel]:
    """Return the model of a shape; `more` are further attributes of its fields."""
    if shape not in _models:
        _models[shape] = create_model(
            _NAMES.get(shape.__name__, shape.__name__),
            __doc__=shape.__doc__,
            __module__=shape.__module__.replace("shapes", "http.schemas"),
            __config__=ConfigDict(
                json_schema_extra={"examples": [*examples]} if examples else None
            ),
            **_fields(shape, more),
        )
    return _models[shape]


def list_of(shape: type, name: str, doc: str, **more: Any) -> type[BaseModel]:
    """Return the model of a list."""
    fields: dict[str, Any] = {"items": GenericAlias(list, model_of(shape)), **more}
    return create_model(name, __doc__=doc, __module__=__name__, **fields)


def page_of(shape: type, name: str, doc: str) -> type[BaseModel]:
    """Return the model of one page of a list."""
    return list_of(shape, name, doc, next_cursor=str | None)


def _fields(shape: type, more: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of a shape as a model declares them."""
    docs = _docs(shape.__module__)[shape.__name__]
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(shape, include_extras=True).items():
        said = {"description": docs.get(name), **more.get(name, {})}
        kind = _converted(hint)
        if get_origin(hint) is NotRequired and "default" not in said:
            kind, said["default"] = _optional(kind)
        if hasattr(BaseModel, name):
            found[f"{name}_"] = (kind, Field(alias=name, **said))
        else:
            found[name] = (kind, Field(**said))
    return found


def _optional(kind: Any) -> tuple[Any, Any]:
    """Return the type and the default of an optional field."""
    if get_origin(kind) in (list, dict):
        return kind, get_origin(kind)()
    return (kind if kind is Any else kind | None), None


def _converted(hint: Any) -> Any:
    """Return a type in which shapes are replaced by their models."""
    if is_typeddict(hint):
        return model_of(hint)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is NotRequired:
        return _converted(parts[0])
    if origin is Annotated:
        return _converted(parts[1])
    if origin in (Union, UnionType):
        return reduce(or_, map(_converted, parts))
    if origin in (list, dict):
        return origin[tuple(map(_converted, parts))]
    return hint


@cache
def _docs(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of fields by class, including inherited ones."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(node, ast.ClassDef):
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            inherited = [found.get(base, {}) for base in bases]
            found[node.name] = reduce(or_, inherited, {}) | _own_docs(node)
    return found


def _own_docs(node: ast.ClassDef) -> dict[str, str]:
    return {
        field.target.id: " ".join(str(doc.value.value).split())
        for field, doc in zip(node.body, node.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
    }
