"""An application that tells of each event of its jobs in an event of its own."""

from breakable import app as breakable

from backburner import App, EngineEvent, Transaction, Translation
from backburner.cli import faults

TYPES = ("job.started", "job.succeeded")


class AtATranslation(faults.Crash):
    """Crashes that count from the first page: there are other transactions before."""

    is_armed = False

    def hit(self, name: str) -> None:
        self.is_armed |= name == "translate.read"
        if self.is_armed:
            super().hit(name)


faults.Crash = AtATranslation


def tell(tx: Transaction, told: EngineEvent) -> None:
    """Name the event that it tells of."""
    assert told.owner is not None
    tx.publish("told", "told", {"seq": told.event.seq}, to=told.owner)


app = App("translating", breakable.capabilities, translates=Translation(TYPES, tell))
