"""Logs where a handler blocks the event loop, while it does."""

import threading
from collections.abc import Callable
from sys import _current_frames as current_frames

from backburner.domain.jobs.job import Claim
from backburner.engine.observability.vitals import LagMeter
from backburner.engine.run.tracing import place_of_frame
from backburner.ports.log import log


class BlockageLog:
    """
    Writes one line for each time that the event loop is blocked for a second.

    The line has file, line and function, and the job whose handler runs. It has no
    value of a variable, which may be user data.
    """

    def __init__(self, lag: LagMeter, running: Callable[[], Claim | None]) -> None:
        """
        Create it in the event loop's thread.

        `running` returns the job whose handler the loop runs at the moment, if known;
        another thread calls it.
        """
        self._lag = lag
        self._running = running
        self._thread = threading.get_ident()
        self._told: int | None = None

    def look(self) -> None:
        """Log the place if the loop is blocked; to be called by another thread."""
        since = self._lag.blocked_since()
        if since is None or since == self._told:
            return
        # Without a place, the loop is idle: the machine was suspended, or had no CPU.
        place = place_of_frame(current_frames().get(self._thread))
        claim = self._running()
        if place is None or self._lag.blocked_since() != since:
            return
        self._told = since
        job = {} if claim is None else _named(claim)
        log.warning("event loop is blocked", place=place, **job)


def _named(claim: Claim) -> dict[str, str]:
    return {"capability": claim.capability, "job_id": claim.id}
