"""`unswept`, and nobody compares the broker with the store."""

from typing import Any

from unswept import app

from backburner.engine.broker.relay import Relay

__all__ = ["app"]


async def look_at_nothing(_relay: Relay, **_: Any) -> float:
    """Trust that the broker has everything."""
    return 60.0


Relay._look = look_at_nothing  # type: ignore[method-assign]
