"""Functions that are imported when they are first called."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any


def lazy(name: str) -> Callable[..., Any]:
    """
    Return a function that imports another one, `package.module:function`, and calls it.

    `App(serves=lazy("songs.routes:serves"))` spares a worker the import of FastAPI.
    """

    def call(*args: Any, **named: Any) -> Any:
        return resolve_name(name)(*args, **named)

    return call
