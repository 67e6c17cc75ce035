"""Finds and loads the applications that a process runs."""

import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from backburner.adapters import installed_apps, load_app
from backburner.app import App
from backburner.domain.errors import ConfigurationError
from backburner.environment import installed_entry_points
from backburner.ports.history import PREFIX

AppOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Application to run: an installed name or module:app. "
        "Can be repeated. Overrides BACKBURNER_APPS.",
    ),
]


def load(names: Sequence[str]) -> list[App]:
    """Return the applications of these names, each once, in this order."""
    # Like `python -m`, so that a module in the current folder is found.
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path holds strings
    # Packages in that folder may declare more entry points.
    installed_entry_points.cache_clear()
    return [_find(name) for name in dict.fromkeys(names)]


def serving_only(services: Sequence[str], apps: Sequence[App]) -> list[App]:
    """Return the applications, with the routes of these services and of no other."""
    for service in services:
        if service not in served_by(apps):
            raise ConfigurationError(f"application {service!r} has no routes to serve")
    return [
        app if app.name in services else replace(app, serves=None, pages=None)
        for app in apps
    ]


class Present(NamedTuple):
    """The applications given to a command, and those with tables in the store."""

    apps: Sequence[App]
    missing: Mapping[str, str]
    """Applications with tables in the store that cannot be loaded, with the reason."""


async def find_present(store: Any, chosen: Sequence[App]) -> Present:
    """Return the chosen applications, and the installed ones with tables in a store."""
    names = await table_names(store)
    left = {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}
    apps, missing = {app.name: app for app in chosen}, {}
    for name in installed_apps():
        if name in apps:
            continue
        try:
            app = _find(name)
        except ConfigurationError as error:
            missing[name] = str(error)
            continue
        tables = () if app.tables is None else app.tables()
        if name in left or any(table.name in names for table in tables):
            apps[name] = app
    for name in left - apps.keys():
        missing.setdefault(name, "it is not installed")
    return Present(
        [*apps.values()],
        {name: missing[name] for name in sorted(left & missing.keys())},
    )


async def table_names(store: Any) -> set[str]:
    """Return the names of the tables in a store that need not be open."""
    if not hasattr(store, "side") or await store.version() is None:
        return set()
    side = store.side()
    try:
        names: set[str] = await side.read(_names)
    finally:
        await side.close()
    return names


def _names(connection: Any) -> set[str]:
    from sqlalchemy import inspect

    return {*inspect(connection).get_table_names()}


def served_by(apps: Sequence[App]) -> frozenset[str]:
    """Return the names of the applications that have routes or pages."""
    return frozenset(
        app.name for app in apps if app.serves is not None or app.pages is not None
    )


def _find(name: str) -> App:
    module, _, attribute = name.partition(":")
    try:
        found = _load(name) if not attribute else _attribute(module, attribute)
    except ConfigurationError:
        raise
    except ModuleNotFoundError as error:
        if error.name != module:
            raise ConfigurationError(f"application {name!r}: {_told(error)}") from error
        raise ConfigurationError(
            f"application {name!r}: No module named {module!r}: there is no "
            f"{module.replace('.', '/')}.py in the current folder, {os.getcwd()}, "  # noqa: PTH109
            f"and no installed package has this name{_stem_of(module, attribute)}"
        ) from error
    except Exception as error:
        raise ConfigurationError(f"application {name!r}: {_told(error)}") from error
    if not isinstance(found, App):
        raise ConfigurationError(
            f"application {name!r} is a {type(found).__name__}, not a backburner.App"
            f"{_apps_of(module)}"
        )
    return found


def _load(name: str) -> App:
    known = installed_apps()
    if name not in known:
        raise ConfigurationError(
            f"no application is named {name!r}; installed: {', '.join(known)}; "
            f"name your own as {_own(name)}"
        )
    return load_app(name)


def _attribute(module: str, path: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(
                f"application '{module}:{path}': {type(found).__name__} {module!r} has "
                f"no attribute {part!r}{_apps_of(module)}"
            )
        found = getattr(found, part)
    return found


def _apps_of(module: str) -> str:
    """Name the applications of a loaded module, as the end of a message."""
    found = vars(sys.modules[module]) if module in sys.modules else {}
    names = [
        f"{module}:{name}" for name, each in found.items() if isinstance(each, App)
    ]
    return f"; did you mean {' or '.join(names)}?" if names else ""


def _stem_of(module: str, attribute: str) -> str:
    stem, suffix = os.path.splitext(module)  # noqa: PTH122 - a module's name
    return f"; did you mean {stem}:{attribute}?" if suffix == ".py" else ""


def _own(name: str) -> str:
    """Return how an application in the current folder is named."""
    file = Path(name).with_suffix(".py")
    is_here = file.name == str(file) and file.is_file()
    return f"{file.stem}:app" if is_here else "module:app"


def _told(error: Exception) -> str:
    """Describe an error of a module in one line, with its place."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_theirs = not last.filename.startswith(("<frozen", __file__))
    where = f" ({last.filename}, line {last.lineno})" if is_theirs else ""
    return f"{type(error).__name__}: {error}{where}"
