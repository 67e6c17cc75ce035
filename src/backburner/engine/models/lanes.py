"""Rate limits of calls to providers, shared by all workers."""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self
from weakref import WeakValueDictionary

from backburner.domain.errors import StoreUnavailable, Throttled, TransientError
from backburner.domain.jobs.job import Instant, WaitReason
from backburner.domain.jobs.job import Wait as JobWait
from backburner.domain.jobs.wait import Suspended
from backburner.domain.lanes.lane import MAX_NAME
from backburner.domain.lanes.permit import Permit, PermitRequest, Wait
from backburner.domain.lanes.rate_limit_headers import (
    SERVED,
    Headers,
    RateLimitInfo,
    rate_limit_info,
)
from backburner.engine.models.spending import Spending
from backburner.engine.observability import telemetry
from backburner.ports.clock import Clock, Dice
from backburner.ports.log import log
from backburner.ports.store.lanes import LaneStore, PermitReturn
from backburner.ports.store.workers import WorkerLost

PATIENCE = 1.0
PAID_PATIENCE = 600.0
LANE_TIMEOUT = "LANE_TIMEOUT"
RETRY_SECONDS = 0.2
PARTING_SECONDS = 2.0
UNKNOWN = Wait(2000)


class LaneGate(Protocol):
    """The source of permits."""

    async def take(self, lane: str, ask: PermitRequest) -> Permit | Wait:
        """Request a permit to call."""
        ...

    def give(
        self,
        lane: str,
        permit: Permit,
        said: RateLimitInfo | None,
        ask: PermitRequest,
        *,
        is_over: bool = True,
    ) -> "asyncio.Future[PermitReturn]":
        """
        Return a permit; it is returned even if the caller does not wait for it.

        With `is_over=False` only the provider's response is recorded.
        """
        ...

    def ask(self, tokens: int, waited: int) -> PermitRequest:
        """Create a request for a permit."""
        ...

    def now(self) -> Instant:
        """Return the time to which dates in responses are compared."""
        ...

    @property
    def patience(self) -> float:
        """How many seconds a handler may wait while it holds its slot."""
        ...

    @property
    def paid_patience(self) -> float:
        """The same for a handler that has already paid for a call."""
        ...

    def turn(self, lane: str) -> asyncio.Lock:
        """Return a lock that makes waiting calls of this process take turns."""
        ...


class Lanes:
    """One worker's access to the lanes, which all workers share."""

    def __init__(
        self,
        store: LaneStore,
        clock: Clock,
        dice: Dice,
        worker: Callable[[], str],
        *,
        patience: float = PATIENCE,
        paid_patience: float = PAID_PATIENCE,
    ) -> None:
        self._store = store
        self._clock = clock
        self._dice = dice
        self._worker = worker
        self.patience = patience
        self.paid_patience = paid_patience
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._giving: set[asyncio.Task[PermitReturn]] = set()
        self._is_closed = False

    def now(self) -> Instant:
        return self._clock.now()

    def ask(self, tokens: int, waited: int) -> PermitRequest:
        return PermitRequest(
            f"p_{self._dice.token()}", tokens, waited, self._dice.roll()
        )

    def turn(self, lane: str) -> asyncio.Lock:
        return self._turns.setdefault(lane, asyncio.Lock())

    async def take(self, lane: str, ask: PermitRequest) -> Permit | Wait:
        taking = asyncio.create_task(self._take(lane, ask))
        try:
            answer = await asyncio.shield(taking)
        except asyncio.CancelledError:
            # The permit may still be granted: then return it, as its caller was
            # cancelled.
            taking.add_done_callback(lambda task: self._return(lane, ask, task))
            raise
        telemetry.lane_asked(lane, is_served=isinstance(answer, Permit))
        return answer

    async def _take(self, lane: str, ask: PermitRequest) -> Permit | Wait:
        try:
            return await self._store.take_permit(lane, self._worker(), ask)
        except WorkerLost:
            return UNKNOWN  # another worker holds the job by now
        except StoreUnavailable:
            # The permit may have been granted: return it, and put the job back.
            self.give(lane, Permit(ask.id, 0), None, ask)
            return UNKNOWN

    def _return(
        self, lane: str, ask: PermitRequest, taken: "asyncio.Task[Permit | Wait]"
    ) -> None:
        answer = None if taken.cancelled() else taken.result()
        if isinstance(answer, Permit):
            self.give(lane, answer, None, ask)

    def give(
        self,
        lane: str,
        permit: Permit,
        said: RateLimitInfo | None,
        ask: PermitRequest,
        *,
        is_over: bool = True,
    ) -> "asyncio.Future[PermitReturn]":
        task = self._give(lane, permit, said, ask, is_over=is_over)
        giving = asyncio.create_task(task)
        self._giving.add(giving)
        giving.add_done_callback(self._giving.discard)
        return giving

    async def close(self) -> None:
        """Wait until every permit is returned, or cannot be."""
        if self._giving:
            _, left = await asyncio.wait(self._giving, timeout=PARTING_SECONDS)
            for giving in left:
                giving.cancel()
        self._is_closed = True

    async def _give(
        self,
        lane: str,
        permit: Permit,
        info: RateLimitInfo | None,
        ask: PermitRequest,
        *,
        is_over: bool,
    ) -> PermitReturn:
        while True:
            try:
                given = await self._store.give_permit(
                    lane, permit, info, ask, is_over=is_over
                )
            except StoreUnavailable as error:
                if self._is_closed:
                    raise
                # Retry: a permit that is not returned stays taken for the worker's
                # life.
                log.warning("permit not returned", lane=lane, code=error.code)
                await asyncio.sleep(RETRY_SECONDS)  # noqa: TID251 - no event to wait for
            else:
                wait = None if given.wait is None else given.wait.span
                if is_over:
                    telemetry.lane_answered(lane, info, wait, is_parked=given.is_parked)
                return given


class Call:
    """
    One call to a provider: `async with ctx.lane("openai", "gpt-5-mini") as call:`.

    Make the call inside the block, and report the response with `call.hear(status,
    headers)`. An exception with a `response` attribute, such as those of httpx and of
    the providers' own clients, is reported automatically.
    """

    def __init__(  # noqa: PLR0913 - independent options
        self,
        lane_gate: LaneGate | None,
        lane: str,
        *,
        tokens: int = 0,
        waited: int = 0,
        spending: Spending | None = None,
        waits: bool = True,
        within: str | None = None,
    ) -> None:
        """
        Create a call in a lane; without a `lane_gate` it needs no permit.

        With `waits`, a run whose `spending` shows that it has paid for a call waits
        here for its turn. `within` is another lane that must have capacity first; the
        provider's rate limits do not apply to it.
        """
        if not 0 < len(lane) <= MAX_NAME or not lane.isprintable():
            raise ValueError(f"a lane's name has 1 to {MAX_NAME} printable characters")
        if tokens < 0:
            raise ValueError("a count of tokens is a whole number from 0")
        self.lane = lane
        self._lane_gate = lane_gate
        self._tokens = tokens
        self._waited = waited
        self._ask: PermitRequest | None = None
        self._permit: Permit | None = None
        self._said: RateLimitInfo | None = None
        self._spending = spending
        self._waits = waits
        self._outer = None
        if within is not None:
            self._outer = Call(
                lane_gate, within, waited=waited, spending=spending, waits=waits
            )

    async def __aenter__(self) -> Self:
        await self._check()
        if self._outer is not None:
            await self._outer.take()
        try:
            await self.take()
        except BaseException:
            self._release_outer()
            raise
        if self._spending is not None:
            if self._spending.suspended is not None:  # another call ends the run
                self.release()
                self._release_outer()
                raise Suspended(self._spending.suspended)
            self._spending.begin()
        return self

    async def take(self) -> None:
        """Get a permit to call."""
        if self._lane_gate is not None:
            self._ask = self._wish(self._lane_gate)
            self._permit = await self._permitted(self._lane_gate, self._ask)

    def _wish(self, lane_gate: LaneGate) -> PermitRequest:
        """Create a request; runs that have reused paid answers go first."""
        spending = self._spending
        if spending is None or not spending.has_recalled:
            return lane_gate.ask(self._tokens, self._waited)
        return lane_gate.ask(self._tokens, max(self._waited, 1))._replace(
            goes_first=True
        )

    def release(self) -> None:
        """Return the permit, whatever the provider answered."""
        permit, self._permit = self._permit, None
        if self._lane_gate is not None and permit is not None and self._ask is not None:
            self._lane_gate.give(self.lane, permit, SERVED, self._ask)

    def _release_outer(self) -> None:
        if self._outer is not None:
            self._outer.release()

    async def _permitted(self, lane_gate: LaneGate, ask: PermitRequest) -> Permit:
        """Return a permit as soon as it is granted; raise if that takes too long."""
        patience = lane_gate.patience
        while True:
            answer = await lane_gate.take(self.lane, ask)
            if isinstance(answer, Permit):
                return answer
            spending = self._spending
            is_free = spending is None or spending.can_be_suspended
            has_paid = spending is not None and spending.has_paid
            if self._waits and spending is not None and has_paid and not is_free:
                limit = spending.patience
                return await self._permitted_here(lane_gate, ask, answer, limit)
            patience -= answer.span / 1000
            if patience < 0:
                if spending is not None and is_free and self._waits:
                    raise self._suspended(spending, lane_gate.now() + answer.span)
                raise self._throttled("the lane is full or paused", answer)
            ask = ask._replace(waited=ask.waited + answer.span)
            await asyncio.sleep(answer.span / 1000)  # noqa: TID251 - until its turn
            await self._check()

    def _suspended(self, spending: Spending, until: Instant) -> Suspended:
        """End the run until its turn; its answers are stored, so it pays only once."""
        spending.suspended = JobWait(WaitReason.LANE, self.lane, until)
        return Suspended(spending.suspended)

    async def _permitted_here(
        self,
        lane_gate: LaneGate,
        ask: PermitRequest,
        answer: Permit | Wait,
        patience: float,
    ) -> Permit:
        """Wait for a permit without ending the run, which has paid for calls."""
        ask = ask._replace(goes_first=True)
        try:
            # One call of a process asks at a time: the others would come later anyway.
            async with asyncio.timeout(patience), lane_gate.turn(self.lane):
                while isinstance(answer, Wait):
                    await asyncio.sleep(answer.span / 1000)  # noqa: TID251 - its turn
                    await self._check()
                    ask = ask._replace(waited=ask.waited + answer.span)
                    answer = await lane_gate.take(self.lane, ask)
                return answer
        except TimeoutError:
            raise TransientError(
                f"lane {self.lane!r}: no call was allowed within {patience:g} s, "
                "and this attempt has already paid for calls",
                code=LANE_TIMEOUT,
            ) from None

    async def _check(self) -> None:
        """Raise if the run may make no further call: others may have used its hold."""
        if self._spending is not None:
            await self._spending.check()

    def hear(
        self, status: int, headers: Headers | None = None, body: Any = None
    ) -> None:
        """
        Report the provider's response; the `body` matters only if it refused.

        After a refusal (429 or 529) this raises `Throttled`: do not catch it. The job
        is put back without using an attempt, and all workers pause the lane.
        """
        now = 0 if self._lane_gate is None else self._lane_gate.now()
        self._said = rate_limit_info(status, headers, body, now=now)
        if self._said.is_refused:
            raise self._throttled("the provider refused the call", None)
        if self._lane_gate and self._ask and self._permit and self._permit.is_probe:
            # Others wait for this call, and its text may take a while to arrive.
            self._lane_gate.give(
                self.lane, self._permit, self._said, self._ask, is_over=False
            )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, GeneratorExit):
            return  # the loop is closed, so nothing can be returned
        self._release_outer()
        if self._spending is not None:
            self._spending.end(is_served=error is None)
        info = self._said or self._understood(error)
        permit, self._permit = self._permit, None
        if self._lane_gate is None or permit is None or self._ask is None:
            if info is not None and info.is_refused:
                raise self._throttled("the provider refused the call", None) from error
            return
        ask = self._ask._replace(roll=self._lane_gate.ask(0, 0).roll)
        giving = self._lane_gate.give(self.lane, permit, info, ask)
        if info is not None and info.is_refused:
            given = await asyncio.shield(giving)
            raise self._throttled(
                "the provider refused the call", given.wait
            ) from error

    def _understood(self, error: BaseException | None) -> RateLimitInfo | None:
        """Return what an exception says about the response; `SERVED` without one."""
        if error is None:
            return SERVED
        answer = getattr(error, "response", None)
        statuses = [getattr(answer, "status_code", None), *_statuses(error)]
        status = next((code for code in statuses if isinstance(code, int)), None)
        if status is None:
            return None
        headers = getattr(answer, "headers", getattr(error, "headers", None))
        now = 0 if self._lane_gate is None else self._lane_gate.now()
        read = headers if isinstance(headers, Mapping) else None
        return rate_limit_info(status, read, _body(error, answer), now=now)

    def _throttled(self, why: str, wait: Wait | None) -> Throttled:
        seconds = 1.0 if wait is None else wait.span / 1000
        return Throttled(
            f"lane {self.lane!r}: {why}", retry_after=seconds, lane=self.lane
        )


def _statuses(error: BaseException) -> list[Any]:
    """Return possible status codes: clients use different attribute names."""
    return [getattr(error, name, None) for name in ("status_code", "status", "code")]


def _body(error: BaseException, answer: object) -> Any:
    for name in ("body", "details"):
        body = getattr(error, name, None)
        if isinstance(body, (str, bytes, Mapping, list)):
            return body
    try:
        return getattr(answer, "text", None)
    except Exception:  # noqa: BLE001 - reading an unread stream may raise anything
        return None
