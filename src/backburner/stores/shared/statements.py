"""Loads SQL statements from files, one file each."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.resources import files
from typing import TypeVar

T = TypeVar("T")


def load(kind: type[T], package: str) -> T:
    """Read `queries/<name>.sql` of a package for every field of `kind`."""
    if not is_dataclass(kind):
        raise TypeError(f"{kind} has no fields to fill")
    return kind(**_texts(package, tuple(field.name for field in fields(kind))))


@cache
def _texts(package: str, names: tuple[str, ...]) -> Mapping[str, str]:
    """Return statements by their names; a process reads the files once."""
    folder = files(package).joinpath("queries")
    return {
        name: _without_comments(folder.joinpath(f"{name}.sql").read_text("utf-8"))
        for name in names
    }


def _without_comments(text: str) -> str:
    lines = text.strip().splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))
