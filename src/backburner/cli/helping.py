"""What the help shows as the type of an option: a placeholder, for flags nothing."""

from typing import Any

from typer.core import TyperArgument, TyperOption

_PLACEHOLDERS = {"int": "N", "int range": "N", "float": "N", "float range": "N"}
_of_option = TyperOption.display_type_rich
_of_argument = TyperArgument.display_type_rich


def _option(option: TyperOption, ctx: Any) -> str | None:
    found = _of_option(option, ctx) or ""
    name = found.strip("<>")
    if name == "bool":
        return None
    if name == found or "|" in name:
        return found  # its own placeholder, or the possible values
    return _PLACEHOLDERS.get(name, "TEXT")


def _argument(argument: TyperArgument, ctx: Any) -> str | None:
    found = _of_argument(argument, ctx) or ""
    return found if "|" in found else None


def install() -> None:
    """Let the help of every command show types in this way."""
    TyperOption.display_type_rich = _option  # type: ignore[method-assign,assignment]
    TyperArgument.display_type_rich = _argument  # type: ignore[method-assign,assignment]
