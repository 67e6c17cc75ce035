"""
The database schemas of applications: found, compared and migrated.

Each application has its own revisions and its own version table, so an application that
is no longer installed blocks neither the engine nor the others.
"""

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from backburner.app import App
from backburner.domain.errors import ConfigurationError, StoreUnavailable
from backburner.ports.history import PREFIX, History
from backburner.ports.log import log
from backburner.ports.store import Store

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
"""The name is part of a table's name, which PostgreSQL truncates after 63 bytes."""


class Migrated(NamedTuple):
    """The result for one application's schema."""

    application: str
    before: str | None
    after: str | None
    needed: str
    problem: str = ""
    """Why the schema cannot be used; empty if it can."""


def history_of(app: App) -> History:
    """Return the revisions of an application with migrations."""
    if not _NAME.fullmatch(app.name):
        raise ConfigurationError(
            f"application {app.name!r} has migrations: its name must be 1 to 40 "
            "lower-case letters, digits, `_` or `-`, and begin with a letter"
        )
    folder = _folder(app)
    revisions = dict(_revisions(app, folder))
    followed = {down for downs in revisions.values() for down in downs}
    heads = sorted(revisions.keys() - followed)
    if len(heads) != 1:
        found = ", ".join(heads) or "none"
        raise ConfigurationError(
            f"application {app.name!r}: {folder} must have one last revision, "
            f"it has: {found}"
        )
    return History(app.name, folder, PREFIX + app.name, heads[0], frozenset(revisions))


def _folder(app: App) -> Path:
    try:
        spec = find_spec(app.migrations)
    except (ImportError, ValueError):
        spec = None
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place) / "versions"
        if folder.is_dir():
            return folder
    raise ConfigurationError(
        f"application {app.name!r}: there is no package {app.migrations!r} with a "
        "folder `versions` of Alembic revisions"
    )


def _revisions(app: App, folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """
    Return each revision with the revisions that it follows.

    They are parsed, not run: loading Alembic takes a sixth of a second, which a process
    with an up-to-date schema need not spend.
    """
    for file in sorted(folder.glob("*.py")):
        if file.name == "__init__.py":
            continue
        try:
            assigned = dict(_assigned(ast.parse(file.read_text("utf-8"))))
        except (SyntaxError, ValueError) as error:
            why = f"application {app.name!r}: {file} cannot be read: {error}"
            raise ConfigurationError(why) from None
        revision, down = assigned.get("revision"), assigned.get("down_revision") or ()
        if not isinstance(revision, str):
            why = f"application {app.name!r}: {file} does not say `revision = …`"
            raise ConfigurationError(why)
        yield revision, (down,) if isinstance(down, str) else tuple(down)


def _assigned(module: ast.Module) -> Iterator[tuple[str, Any]]:
    for line in module.body:
        if isinstance(line, ast.Assign):
            targets: list[ast.expr] = line.targets
        elif isinstance(line, ast.AnnAssign):
            targets = [line.target]
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and line.value and target.id in _SAID:
                yield target.id, ast.literal_eval(line.value)


_SAID: Final = frozenset({"revision", "down_revision"})


async def compare(store: Store, app: App) -> Migrated:
    """Compare an application's schema with the required one; change nothing."""
    try:
        history = history_of(app)
    except ConfigurationError as error:
        return Migrated(app.name, None, None, "", str(error))
    version = await store.version(history)
    return _standing(history, version)


async def migrate(store: Store, app: App) -> Migrated:
    """
    Bring an application's schema up to date.

    Errors of its revisions are logged and returned, not raised: they concern this
    application only. If the store is unavailable, `StoreUnavailable` is raised.
    """
    outcome = await _migrate(store, app)
    if outcome.problem:
        log.error("application is not available", application=app.name)
    return outcome


async def _migrate(store: Store, app: App) -> Migrated:
    found = await compare(store, app)
    if not found.problem or not found.needed:
        return found
    history = history_of(app)
    if found.before is not None and found.before not in history.revisions:
        return found
    try:
        _, after = await store.migrate(history)
    except Exception as error:  # noqa: BLE001 - a revision may raise anything
        # Raises if the store itself is unavailable.
        after = await store.version(history)
        why = f"its migration to {history.head} failed: {_told(error)}"
        return found._replace(after=after, problem=why)
    return found._replace(after=after, problem="")


def _standing(history: History, version: str | None) -> Migrated:
    problem = ""
    if version is not None and version not in history.revisions:
        problem = (
            f"its schema is at {version}, which this release of it does not know: "
            "install the release that created it"
        )
    elif version != history.head:
        problem = f"its schema is at {version or 'none'}, it needs {history.head}"
    return Migrated(history.name, version, version, history.head, problem)


def _told(error: Exception) -> str:
    """Describe an error in one line, without details, which may have a row's values."""
    cause = error.__cause__ if isinstance(error, StoreUnavailable) else error
    found = getattr(cause, "orig", None) or cause or error
    first = str(found).strip().partition("\n")[0]
    return first.rpartition(">: ")[2] or type(found).__name__
