"""
Exports dead letters to the broker: one message for each failed job.

The store remembers up to which failure that is done, so none is left out whoever dies;
a letter may come twice, under one id. One process digs at a time.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from backburner.domain.errors import BrokerUnavailable, StoreUnavailable
from backburner.domain.job import Instant, Job
from backburner.domain.message import dead_letter
from backburner.engine import telemetry
from backburner.engine.contact import Contact
from backburner.engine.loop import Loop
from backburner.ports.broker import DEAD_DAYS, Broker, Letter
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults
from backburner.ports.log import log
from backburner.ports.store import Store

LOOK_SECONDS: Final = 1.0
SPAN: Final = timedelta(seconds=30)
"""How long others wait for one that digs; it may have died."""
PAGE: Final = 100
OLDEST: Final = timedelta(days=DEAD_DAYS)
"""Letters that the broker would have forgotten by now are not written any more."""


class Burial:
    """Follows what fails; one in every process that has a broker."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        contact: Contact,
        clock: Clock,
        faults: Faults,
        digger: str,
    ) -> None:
        """Take a name that no other process has."""
        self._store = store
        self._broker = broker
        self._contact = contact
        self._clock = clock
        self._faults = faults
        self._digger = digger
        self._written: set[str] = set()
        """The letters above the mark that this process wrote."""
        self._is_told = False
        """Whether it was said that letters cannot be written."""
        self._loop = Loop("burial", self.dig, every=LOOK_SECONDS)

    async def start(self) -> None:
        """Begin; of a broker's first house, with what fails from now on."""
        await self._store.begin_burials()
        self._loop.start()

    async def stop(self) -> None:
        """Dig no more."""
        await self._loop.stop()

    def poke(self) -> None:
        """Be told that a job failed."""
        self._loop.poke()

    async def dig(self) -> float | None:
        """Bury what failed since; say whether there is more."""
        if not self._contact.is_up:
            return None
        try:
            found = await self._store.unburied(self._digger, span=SPAN, limit=PAGE)
            if found is None:
                return None
            await self._write(found.jobs)
            self._faults.hit("burial.written")
            await self._store.bury(self._digger, upto=found.upto)
            self._written.clear()
        except BrokerUnavailable as error:
            # It may be the dead letters' queue alone: work goes on, and says if not.
            if not self._is_told:
                log.warning("dead letters not written", code=error.code)
            self._is_told = True
            return None
        except StoreUnavailable:
            return None
        self._is_told = False
        return 0.0

    async def _write(self, jobs: Sequence[Job]) -> None:
        oldest: Instant = self._clock.now() - OLDEST // timedelta(milliseconds=1)
        letters: defaultdict[str, list[Letter]] = defaultdict(list)
        for job in jobs:
            name = f"{job.id}.{job.generation}"
            if (job.finished_at or 0) >= oldest and name not in self._written:
                letters[job.queue].append(Letter(name, dead_letter(job)))
        for queue, some in letters.items():
            await self._broker.bury(queue, some)
            self._written |= {letter.id for letter in some}
            telemetry.letters_buried.labels(queue).inc(len(some))
