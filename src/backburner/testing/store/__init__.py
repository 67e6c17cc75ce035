"""
What every store must do: subclass `StoreConformance` and supply two fixtures.

`store` is an open store with nothing in it; `let_pass` lets its clock go on by a span,
however that is done. A store is done when its subclass passes.
"""

from backburner.testing.store.claims import ClaimConformance
from backburner.testing.store.event_log import EventLogConformance
from backburner.testing.store.keeper import KeeperConformance
from backburner.testing.store.keys import KeyConformance
from backburner.testing.store.moves import MoveConformance
from backburner.testing.store.queues import QueueConformance
from backburner.testing.store.roster import RosterConformance
from backburner.testing.store.settlements import SettleConformance
from backburner.testing.store.submission import SubmitConformance
from backburner.testing.store.timetable import TimetableConformance

__all__ = ["StoreConformance"]


class StoreConformance(
    SubmitConformance,
    ClaimConformance,
    SettleConformance,
    MoveConformance,
    RosterConformance,
    QueueConformance,
    TimetableConformance,
    EventLogConformance,
    KeeperConformance,
    KeyConformance,
):
    """Everything that `ports/store.py` promises."""
