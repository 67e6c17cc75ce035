"""
The application of a simulated world: it translates engine events into its own.

Each translation writes a row and publishes an event, so that both can be compared with
the events to translate. Triggers record those, because jobs may be pruned later.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import sqlalchemy as sa

from backburner.domain.errors import StoreUnavailable
from backburner.domain.events import event
from backburner.domain.events.translation import EngineEvent, Selection, Translation
from backburner.engine.submit.submission import LOCAL
from backburner.engine.transaction import Transaction
from backburner.testing.records import Breach
from backburner.testing.simulation.disk import Disk

NAME: Final = "sim"
TYPES: Final = (event.STARTED, event.STALLED, event.SUCCEEDED, event.FAILED)
CAPABILITIES: Final = ("sim.work",)
USED: Final = 0.25
"""The share of worlds that have the application."""
TABLES: Final = (
    "CREATE TABLE due (event INTEGER PRIMARY KEY, is_pruned INTEGER NOT NULL)",
    "CREATE TABLE translated (n INTEGER PRIMARY KEY, event INTEGER NOT NULL)",
    """
    CREATE TRIGGER note_due AFTER INSERT ON events
    WHEN new.type IN ('job.started', 'job.stalled', 'job.succeeded', 'job.failed')
    BEGIN
      INSERT INTO due SELECT new.seq, 0 FROM jobs, marks
       WHERE jobs.seq = new.job AND capability = 'sim.work'
         AND name = 'translation:sim';
    END
    """,
    """
    CREATE TRIGGER note_pruned_event AFTER DELETE ON events
    BEGIN
      UPDATE due SET is_pruned = 1 WHERE event = old.seq
         AND event > (SELECT at FROM marks WHERE name = 'translation:sim');
    END
    """,
)
"""The events to translate since the mark exists, and the translated ones."""
BEHIND: Final = """
SELECT 1 FROM due JOIN marks ON event > at
 WHERE name = 'translation:sim' AND NOT is_pruned LIMIT 1
"""
TRANSLATED: Final = "SELECT event FROM translated ORDER BY n"
PUBLISHED: Final = """
SELECT data ->> 'event' FROM events WHERE topic = 'translations' ORDER BY seq
"""
RECORD_TRANSLATION: Final = sa.text("INSERT INTO translated (event) VALUES (:event)")


class Application:
    """Translates events of jobs, with its own random numbers."""

    def __init__(self, seed: int) -> None:
        self.lots = random.Random(f"application {seed}")
        self.is_used = self.lots.random() < USED
        """Whether this world has the application."""
        self._failing = self.lots.choice((0.0, 0.1))
        """The probability that a translation fails after it has published."""
        self.translation = Translation(TYPES, self._translate)
        self.selection = Selection(TYPES, CAPABILITIES, queues=())

    @property
    def tables(self) -> Sequence[str]:
        """The statements that create its tables."""
        return TABLES if self.is_used else ()

    def is_behind(self, disk: Disk) -> bool:
        """Return whether events after the mark wait for their translation."""
        return self.is_used and bool(disk.rows(BEHIND))

    def breaches(self, disk: Disk) -> Iterator[Breach]:
        """Yield events that were not translated exactly once and in order."""
        if not self.is_used:
            return
        due = dict(disk.rows("SELECT event, is_pruned FROM due"))
        made = [number for (number,) in disk.rows(TRANSLATED)]
        counts = Counter(made)
        for number in sorted({*due, *made}):
            # An event that was pruned before the mark reached it need not be
            # translated.
            least, most = int(not due.get(number, 1)), int(number in due)
            if not least <= counts[number] <= most:
                told = f"was translated {counts[number]} times, not {most}"
                yield Breach("translation", f"event {number}", told)
        if made != sorted(made):
            yield Breach("translation", "", f"is out of order: {made}")
        published = [number for (number,) in disk.rows(PUBLISHED)]
        if published != made:
            told = f"published {published}, committed {made}"
            yield Breach("translation", "", told)

    def _translate(self, tx: Transaction, told: EngineEvent) -> None:
        number = told.event.seq
        tx.connection.execute(RECORD_TRANSLATION, {"event": number})
        said = {"event": number}
        tx.publish("translations", "translated", said, to=told.owner or LOCAL)
        if self.lots.random() < self._failing:
            raise StoreUnavailable("the translation fails on purpose")
