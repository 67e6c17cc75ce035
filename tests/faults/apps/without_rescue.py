"""`breakable` in an instance that rescues nobody."""

from breakable import app

from backburner.engine.maintenance.upkeep import Upkeep

__all__ = ["app"]


async def rescue(_upkeep: Upkeep) -> None:
    """Leave the dead alone."""


Upkeep.rescue = rescue  # type: ignore[assignment, method-assign]
