"""
The features: one file each.

Every module here that defines a subclass of `AsyncTaskHandler` is a feature; adding a
file adds its routes, its jobs and its functions on AWS.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from backburner_apps.features.core.task import AsyncTaskHandler

Feature = type[AsyncTaskHandler[Any]]


@cache
def features() -> Mapping[str, Feature]:
    """Return all features by the name that routes use."""
    modules = [
        import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)
    ]
    found = [feature for module in modules for feature in _defined_in(module)]
    return {feature.feature: feature for feature in sorted(found, key=_name)}


def _name(feature: Feature) -> str:
    return feature.feature


def _defined_in(module: ModuleType) -> list[Feature]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, AsyncTaskHandler)
        and value.__module__ == module.__name__
    ]
