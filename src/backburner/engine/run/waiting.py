"""
Waits of a handler that release its slot: sleeps, signals, questions and child jobs.

A wait that is not over raises `Suspended`, which ends the run. When it is over, the
handler runs again from the top, gets its stored steps and passes the wait.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeVar

from backburner.domain.errors import ClaimLost, PermanentError
from backburner.domain.jobs.job import Claim, Instant, Wait, WaitReason
from backburner.domain.jobs.outcome import Suspension
from backburner.domain.jobs.step import SLEEP
from backburner.domain.jobs.wait import (
    CHILD,
    MAX_SIGNAL_NAME,
    NewWait,
    StoredWait,
    Suspended,
    WaitOutcome,
)
from backburner.engine.models.usage import FIRST_RUN
from backburner.engine.run.steps import Busy, Step, StepJournal, adapter_of

T = TypeVar("T")

WAIT_TIMEOUT: Final = "WAIT_TIMEOUT"
LONGEST: Final = timedelta(days=3660)
_TIMED: Final = frozenset({WaitReason.SLEEP, WaitReason.LANE})


class WaitTimedOut(PermanentError):
    """No signal or answer came in time; catch it to continue without one."""

    problem_code = WAIT_TIMEOUT

    def __init__(self, name: str) -> None:
        super().__init__(f"no signal came for wait {name!r} in time", code=WAIT_TIMEOUT)


class WaitStorage(Protocol):
    """Stores waits."""

    async def open_wait(
        self, job: int, token: str, generation: int, wait: NewWait
    ) -> StoredWait | None:
        """Store a wait, or return the stored one; see `WaitStore`."""
        ...

    async def find_wait(
        self, job: int, generation: int, name: str
    ) -> StoredWait | None:
        """Return a stored wait; see `WaitStore`."""
        ...


class Decided(NamedTuple):
    """How a wait was decided: by a value or a timeout."""

    value: str | None
    is_timed_out: bool = False


class Waiting:
    """The waits of one run of a job."""

    def __init__(
        self,
        claim: Claim,
        storage: WaitStorage | None,
        journal: StepJournal,
        *,
        now: Callable[[], Instant],
        lose: Callable[[Claim], None] | None = None,
    ) -> None:
        self._claim = claim
        self._storage = storage if claim.token else None
        self._journal = journal
        self._now = now
        self._lose = lose
        self.names: list[str] = []
        """The names of waits that this run has reached and that are not decided."""
        self._open: list[Wait] = []
        """Those of them that are stored."""
        self._times: list[Instant] = []
        """When sleeps of this run are over."""
        self._begins = Busy()

    def all_of(self, suspension: Suspension, lane: Wait | None) -> Suspension:
        """
        Return how a run ends that waits for several things at once.

        The first time of all of them starts the job, and so does any signal: a job that
        waits for a time only is not started by signals.
        """
        wait, others = suspension.wait, [*self._open, *([lane] if lane else ())]
        times = [*self._times, *(w.until for w in others if w.until is not None)]
        if wait.reason in _TIMED and self._open:
            wait = self._open[0]
        questions = [w.name for w in self._open if w.reason is WaitReason.QUESTION]
        return Suspension(
            wait,
            names=tuple(self.names),
            wake_at=min(times, default=None),
            questions=tuple(name for name in questions if name is not None),
        )

    async def begin(self, waiting: Awaitable[T]) -> T:
        """Return what begins a wait; the run does not end before it has begun."""
        with self._journal.busy, self._begins:
            return await waiting

    async def begun(self) -> None:
        """Return when the waits that this run has reached are stored."""
        await self._begins.rest()

    async def _suspend(self, wait: Wait) -> NoReturn:
        """End the run once model calls and waits beside this one are stored."""
        await self._journal.busy.rest()
        raise Suspended(wait)

    async def sleep(self, delay: float | timedelta) -> None:
        """Return once the time is over that the first run decided on."""
        self.require()
        span = milliseconds(delay, "sleep")

        async def compute(_key: str) -> Instant:
            return self._now() + span

        async def decide() -> Instant:
            until: Instant
            until, _ = await self._journal.call(SLEEP, b"", compute, int)
            await self._journal.flush()
            return until

        until = await self.begin(decide())
        if self._now() < until:
            self._times.append(until)
            await self._suspend(Wait(WaitReason.SLEEP, None, until))

    async def signal(
        self, name: str, limit: float | timedelta | None, into: Any
    ) -> Any:
        """Return the value of a signal; raise `WaitTimedOut` if none came in time."""
        wait = NewWait(check_name(name), WaitReason.SIGNAL, span_of(limit))
        return self.loaded(name, await self.decided(wait), into)

    async def decided(self, wait: NewWait) -> Decided:
        """Return how a wait was decided; end the run if it is not decided."""
        storage = self.require()
        name = wait.name
        if name not in self.names:
            self.names.append(name)
        stored = await self.begin(self._stored(storage, wait))
        if stored.outcome is None:
            shown = name
            if wait.kind is WaitReason.JOB:
                shown = name.removeprefix(CHILD).partition("#")[0]
            self._open.append(Wait(wait.kind, shown, stored.until))
            await self._suspend(self._open[-1])
        if name in self.names:  # or another branch has waited for it, too
            self.names.remove(name)
        return Decided(stored.value, stored.outcome is WaitOutcome.TIMED_OUT)

    async def _stored(self, storage: WaitStorage, wait: NewWait) -> StoredWait:
        """Return the stored wait; create it if needed."""
        claim, persist = self._claim, self._journal.persist
        await self._journal.flush()
        stored: StoredWait | None
        if claim.events > FIRST_RUN or claim.generation:
            # A decision never changes, so it is read without a transaction.
            named = (claim.seq, claim.generation, wait.name)
            stored = await persist(storage.find_wait, *named)
            if stored is not None and _is_decided(stored, wait):
                return stored
        asked = (claim.seq, claim.token, claim.generation, wait)
        stored = await persist(storage.open_wait, *asked)
        if stored is None:
            if self._lose is not None:
                self._lose(claim)
            raise ClaimLost(claim.id)
        return stored

    def loaded(self, name: str, decided: Decided, into: Any) -> Any:
        """Return a signal's value as the type that the handler expects."""
        if decided.is_timed_out:
            raise WaitTimedOut(name)
        step = Step(name, "wait", name, adapter_of(Any if into is None else into))
        return step.load(decided.value or "null")

    def require(self) -> WaitStorage:
        """Return the store of waits; raise if the run has no job."""
        if self._storage is None:
            raise PermanentError("only a job can wait; this run has no job")
        return self._storage


def _is_decided(stored: StoredWait, wait: NewWait) -> bool:
    """Return whether a stored decision is one about this wait."""
    # The store decides whether the signal came before the question.
    is_early = stored.kind is WaitReason.SIGNAL and wait.kind is WaitReason.QUESTION
    return stored.outcome is not None and not is_early


def check_name(name: str) -> str:
    """Return the name of a signal; raise if it is invalid."""
    is_good = 0 < len(name) <= MAX_SIGNAL_NAME and name.isprintable()
    if not is_good or name.startswith(CHILD):
        raise PermanentError(
            f"a signal's name has 1 to {MAX_SIGNAL_NAME} printable characters and "
            f"does not begin with {CHILD!r}; this one is {name[:50]!r}",
            code="SIGNAL_NAME",
        )
    return name


def milliseconds(span: float | timedelta, what: str) -> int:
    """Return a time span in milliseconds; raise `PermanentError` if it is invalid."""
    try:
        delay = span if isinstance(span, timedelta) else timedelta(seconds=span)
    except (OverflowError, ValueError, TypeError):
        delay = None
    if delay is None or not timedelta() <= delay <= LONGEST:
        raise PermanentError(
            f"{what}: a span is 0 seconds to {LONGEST.days} days, not {span!r}",
            code="WAIT_SPAN",
        )
    return delay // timedelta(milliseconds=1)


def span_of(timeout: float | timedelta | None) -> int | None:
    """Return the timeout of a wait in milliseconds; `None`: no limit."""
    return None if timeout is None else milliseconds(timeout, "timeout")
