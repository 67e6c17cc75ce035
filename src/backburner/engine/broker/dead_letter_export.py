"""
Exports dead letters to the broker: one message for each failed job.

The store records how far the export has come, so a crash loses none. A message may be
published twice, with the same id. One process exports at a time.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from backburner.domain.errors import BrokerUnavailable, StoreUnavailable
from backburner.domain.jobs.job import Instant, Job
from backburner.domain.message import dead_letter
from backburner.engine.broker.health import BrokerHealth
from backburner.engine.loop import Loop
from backburner.engine.observability import telemetry
from backburner.ports.broker import DEAD_DAYS, Broker, DeadLetter
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults
from backburner.ports.log import log
from backburner.ports.store import Store

LOOK_SECONDS: Final = 1.0
SPAN: Final = timedelta(seconds=30)
"""How long one process may export alone before another takes over."""
PAGE: Final = 100
OLDEST: Final = timedelta(days=DEAD_DAYS)
"""Dead letters older than their retention at the broker are not exported."""


class DeadLetterExporter:
    """Exports new dead letters; one instance in every process with a broker."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        broker_health: BrokerHealth,
        clock: Clock,
        faults: Faults,
        exporter: str,
    ) -> None:
        """Create an exporter; `exporter` is unique to the process."""
        self._store = store
        self._broker = broker
        self._broker_health = broker_health
        self._clock = clock
        self._faults = faults
        self._exporter = exporter
        self._written: set[str] = set()
        """The dead letters beyond the stored position that this process exported."""
        self._is_told = False
        """Whether it was logged that dead letters cannot be exported."""
        self._loop = Loop("dead-letter-export", self.export, every=LOOK_SECONDS)

    async def start(self) -> None:
        """Start; the first process for a broker starts with future failures."""
        await self._store.begin_dead_letter_export()
        self._loop.start()

    async def stop(self) -> None:
        """Stop exporting."""
        await self._loop.stop()

    def poke(self) -> None:
        """Note that a job has failed permanently."""
        self._loop.poke()

    async def export(self) -> float | None:
        """Export new dead letters; return whether there are more."""
        if not self._broker_health.is_up:
            return None
        try:
            found = await self._store.unexported_dead_letters(
                self._exporter, span=SPAN, limit=PAGE
            )
            if found is None:
                return None
            await self._write(found.jobs)
            self._faults.hit("dead_letter_export.written")
            await self._store.mark_dead_letters_exported(
                self._exporter, upto=found.upto
            )
            self._written.clear()
        except BrokerUnavailable as error:
            # Perhaps only the queue of dead letters fails: jobs go on and report other
            # faults.
            if not self._is_told:
                log.warning("dead letters not exported", code=error.code)
            self._is_told = True
            return None
        except StoreUnavailable:
            return None
        self._is_told = False
        return 0.0

    async def _write(self, jobs: Sequence[Job]) -> None:
        oldest: Instant = self._clock.now() - OLDEST // timedelta(milliseconds=1)
        dead_letters: defaultdict[str, list[DeadLetter]] = defaultdict(list)
        for job in jobs:
            name = f"{job.id}.{job.generation}"
            if (job.finished_at or 0) >= oldest and name not in self._written:
                dead_letters[job.queue].append(DeadLetter(name, dead_letter(job)))
        for queue, some in dead_letters.items():
            await self._broker.publish_dead_letters(queue, some)
            self._written |= {dead_letter.id for dead_letter in some}
            telemetry.dead_letters_exported.labels(queue).inc(len(some))
