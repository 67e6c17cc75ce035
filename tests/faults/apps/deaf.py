"""`breakable` in a process that hears no bell of others."""

from typing import Any

from breakable import app

from backburner.stores.postgres.bell import NotifyBell

__all__ = ["app"]


def hear_nothing(_bell: NotifyBell, *_told: Any) -> None:
    """Let it ring."""


NotifyBell._hear = hear_nothing  # type: ignore[method-assign]
