"""
Findings of `doctor` for a running server, refreshed at most every few seconds.

An examination may take long, so nobody waits for it: a request gets the latest findings
and learns whether newer ones are being collected.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

from backburner.domain.jobs.job import Instant
from backburner.environment import without_passwords
from backburner.ports.finding import Finding, Status

FRESH_SECONDS: Final = 10.0
"""For how long findings are reused."""
WAIT_SECONDS: Final = 0.1
"""For how long a request waits for new findings."""
LONGEST_SECONDS: Final = 30.0
LONGEST_TEXT: Final = 1_000

Examine = Callable[[], AsyncIterator[Finding]]


class Report(NamedTuple):
    """The latest findings."""

    at: Instant | None
    """When the examination ended; `None`: the first one still runs."""
    findings: Sequence[Finding]
    is_running: bool
    """Whether newer findings are being collected."""


class Examination:
    """Examines the installation once for all concurrent callers."""

    def __init__(
        self, examine: Examine | None = None, now: Callable[[], Instant] = lambda: 0
    ) -> None:
        self._examine = examine
        self._now = now
        self._asked_at = -FRESH_SECONDS
        self._task: asyncio.Task[None] | None = None
        self._found: tuple[Instant | None, Sequence[Finding]] = (None, ())

    async def report(self) -> Report:
        """Return the latest findings; start an examination if they are old."""
        now = asyncio.get_running_loop().time()
        if self._task is None or (
            self._task.done() and now - self._asked_at >= FRESH_SECONDS
        ):
            self._asked_at = now
            self._task = asyncio.create_task(self._collect())
        await asyncio.wait({self._task}, timeout=WAIT_SECONDS)
        return Report(*self._found, is_running=not self._task.done())

    async def _collect(self) -> None:
        self._found = await self._collected()

    async def _collected(self) -> tuple[Instant, Sequence[Finding]]:
        found: list[Finding] = []
        if self._examine is None:
            return self._now(), found
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                async for finding in self._examine():
                    found.append(_shown(finding))  # noqa: PERF401 - kept if it fails
        except TimeoutError:
            told = f"it took longer than {LONGEST_SECONDS:.0f} seconds"
            found.append(Finding(Status.WARN, "examination", told, "run doctor"))
        except Exception as error:  # noqa: BLE001 - the report says what it has found
            told = f"it ended with {type(error).__name__}"
            found.append(Finding(Status.FAIL, "examination", told, "run doctor"))
        return self._now(), found


def _shown(finding: Finding) -> Finding:
    message = without_passwords(finding.message)[:LONGEST_TEXT]
    return finding._replace(message=message)
