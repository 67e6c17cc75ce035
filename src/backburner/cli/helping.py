"""What the help shows as the type of an option: a placeholder, for flags nothing."""

from typing import Any

from typer.core import TyperArgument, TyperOption

_PLACEHOLDERS = {"int": "N", "int range": "N", "float": "N", "float range": "N"}
_METHOD = "display_type_rich"
_of_option: Any = getattr(TyperOption, _METHOD, None)
_of_argument: Any = getattr(TyperArgument, _METHOD, None)


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
    # Typer has no setting for it. A release without these methods shows its own types.
    if _of_option is not None and _of_argument is not None:
        setattr(TyperOption, _METHOD, _option)
        setattr(TyperArgument, _METHOD, _argument)
