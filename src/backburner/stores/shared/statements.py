"""Loads SQL statements from files, one file each."""

from dataclasses import fields, is_dataclass
from importlib.resources import files
from typing import TypeVar

T = TypeVar("T")


def load(kind: type[T], package: str) -> T:
    """Read `queries/<name>.sql` of a package for every field of `kind`."""
    if not is_dataclass(kind):
        raise TypeError(f"{kind} has no fields to fill")
    folder = files(package).joinpath("queries")
    return kind(
        **{
            field.name: _without_comments(
                folder.joinpath(f"{field.name}.sql").read_text("utf-8")
            )
            for field in fields(kind)
        }
    )


def _without_comments(text: str) -> str:
    lines = text.strip().splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))
