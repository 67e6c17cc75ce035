"""`breakable` in a process that claims nothing of which no message tells."""

from breakable import app

from backburner.engine.broker.intake import Intake

__all__ = ["app"]


def never(_intake: Intake) -> bool:
    """Wait for a message, however long."""
    return False


Intake._is_sweep_due = never  # type: ignore[method-assign]
