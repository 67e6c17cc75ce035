"""
The commands of applications: `backburner NAME …`.

An application is imported when one of its commands is called, and by
`backburner --help`, which lists them all. Other commands import only what they run.
"""

from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from backburner.adapters import MissingPackage, installed_apps
from backburner.app import App
from backburner.cli import printing
from backburner.cli.applications import load
from backburner.domain.errors import ConfigurationError
from backburner.settings import read

PANEL = "Applications"


class Root(TyperGroup):
    """The commands of the platform, then those of applications."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; those of the platform take precedence."""
        return super().get_command(ctx, cmd_name) or _group(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names; print a line for an application that cannot be loaded."""
        ours, theirs = super().list_commands(ctx), _names()
        for name in {*ours}.intersection(theirs):
            printing.say(
                f"backburner: the commands of application {name!r} cannot be used: "
                f"the platform has a command `backburner {name}`; rename the app"
            )
        return [*ours, *(name for name in theirs if name not in ours)]


def _group(name: str) -> Any:
    """Return the commands of the application with this name, if it has any."""
    if name in installed_apps():
        return _commands(load([name])[0], name)
    for app in load([named for named in read().apps if ":" in named]):
        if app.name == name:
            return _commands(app, name)
    return None


def _commands(app: App, name: str) -> Any:
    if app.commands is None:
        return None
    if not isinstance(app.commands, typer.Typer):
        kind = type(app.commands).__name__
        raise ConfigurationError(
            f"application {app.name!r}: `commands` is a {kind}, not a typer.Typer"
        )
    group = get_group(app.commands)
    group.name = name
    group.rich_help_panel = PANEL
    group.help = group.help or f"Commands of the application {name!r}."
    return group


def _names() -> list[str]:
    names = []
    for name in installed_apps():
        try:
            if load([name])[0].commands is not None:
                names.append(name)
        except MissingPackage:
            continue  # its extra was not installed, which is no fault
        except ConfigurationError as error:
            printing.say(f"backburner: {error}")
    return names
