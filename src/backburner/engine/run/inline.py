"""
Runs a capability within a request, without a job.

Its expected cost is held before it runs and settled with its usage, as for a job.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from backburner.domain.costs.usage import MICRO, Usage
from backburner.domain.errors import PermanentError, StoreUnavailable
from backburner.domain.jobs.job import Claim, NewJob
from backburner.domain.jobs.outcome import Cancel, Failed, Snooze
from backburner.engine.models.usage import loaded
from backburner.engine.registry import Capability
from backburner.engine.run.context import Context
from backburner.engine.run.services import Services
from backburner.engine.submit.budgets import Budgets
from backburner.ports.log import log
from backburner.ports.prices import Prices

SPARE: Final = timedelta(minutes=1)
"""How much longer than the timeout the hold lasts."""


@dataclass(frozen=True, slots=True)
class InlineRunner:
    """Runs capabilities with a hold and without a job."""

    services: Services
    budgets: Budgets
    prices: Prices

    async def run(self, capability: Capability[Any, Any], job: NewJob) -> Any:
        """Run a capability as a job would; raise its error."""
        ctx = Context(_stand_in(job), self.services)
        held = await self.budgets.hold(job, lasts=capability.timeout + SPARE)
        has_succeeded = False
        try:
            answer = await _answer(capability, ctx, job.input)
            has_succeeded = True
            return answer
        finally:
            if held.window_start is not None:
                await self._pay(held.id, ctx.usage, has_succeeded=has_succeeded)

    async def _pay(
        self, hold_id: str, calls: Sequence[Usage], *, has_succeeded: bool
    ) -> None:
        try:
            if not calls and not has_succeeded:
                await self.budgets.release(hold_id)
                return
            tokens = sum(call.tokens for call in calls) if calls else None
            money = await self._cost(calls)
            await self.budgets.settle(hold_id, tokens, money=money)
        except StoreUnavailable as error:
            # The answer exists already, and the hold expires by itself.
            log.warning("usage not recorded", code=error.code, count=len(calls))

    async def _cost(self, calls: Sequence[Usage]) -> Decimal | None:
        await loaded(self.prices)
        costs = [self.prices.price(call).cost for call in calls]
        known = [cost for cost in costs if cost is not None]
        is_known = bool(calls) and len(known) == len(calls)
        return Decimal(sum(known)) / MICRO if is_known else None


async def _answer(capability: Capability[Any, Any], ctx: Context, text: str) -> Any:
    async with asyncio.timeout(capability.timeout.total_seconds()):
        answer = await capability.run(ctx, capability.input.validate_json(text))
    if isinstance(answer, Failed):
        raise PermanentError(answer.message, code=answer.code)
    if isinstance(answer, Snooze | Cancel):
        raise PermanentError("only a job can do this")
    return answer


def _stand_in(job: NewJob) -> Claim:
    """Return a claim for a job that is not stored."""
    now = job.created_at
    return Claim(
        seq=0,
        id=job.id,
        token="",
        tenant=job.owner.tenant,
        user=job.owner.user,
        capability=job.capability,
        queue=job.queue,
        input=job.input,
        priority=0,
        rank=0,
        generation=0,
        attempt=1,
        max_attempts=1,
        crashes=0,
        throttled=0,
        deadline=None,
        created_at=now,
        ready_at=now,
        started_at=now,
        request_id=job.request_id,
        traceparent=job.traceparent,
    )
