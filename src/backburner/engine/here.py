"""A capability run where it is asked for, without a job: for answers at once."""

import asyncio
from typing import Any

from backburner.domain.errors import PermanentError
from backburner.domain.job import Claim, Instant
from backburner.domain.outcome import Cancel, Failed, Snooze
from backburner.engine.asking import Providers
from backburner.engine.context import Context, Submit
from backburner.engine.registry import Capability
from backburner.engine.submission import LOCAL
from backburner.engine.telling import Voice


async def run_here(
    found: Capability[Any, Any],
    claim: Claim,
    submit: Submit,
    providers: Providers | None,
) -> Any:
    """Run a capability by the code of a job; raise what goes wrong."""
    ctx = Context(claim, _Deaf(), submit, providers=providers)
    async with asyncio.timeout(found.timeout.total_seconds()):
        answer = await found.run(ctx, found.input.validate_json(claim.input))
    if isinstance(answer, Failed):
        raise PermanentError(answer.message, code=answer.code)
    if isinstance(answer, Snooze | Cancel):
        raise PermanentError("it can only be done by a job")
    return answer


def stand_in(found: Capability[Any, Any], call: str, text: str, now: Instant) -> Claim:
    """Return what stands for a job where there is none."""
    return Claim(
        seq=0,
        id=call,
        token="",
        tenant=LOCAL.tenant,
        user=LOCAL.user,
        capability=found.name,
        queue=found.queue,
        input=text,
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
        request_id=None,
    )


class _Deaf:
    """The ear of a handler that nobody listens to."""

    def hear(self, voice: Voice) -> None:
        voice.heard()

    def hurry(self) -> None: ...
