"""The job with which the end of a child signals the waiting parent."""

from datetime import timedelta

import orjson
from pydantic import BaseModel

from backburner.domain.jobs.completion import TELL_PARENT, TELLING_ATTEMPTS
from backburner.domain.jobs.retry import RetryPolicy
from backburner.domain.jobs.wait import Signal, child_wait
from backburner.engine.engine import Engine
from backburner.engine.registry import Capability, capability
from backburner.engine.run.context import Context

RETRY = RetryPolicy(
    max_attempts=TELLING_ATTEMPTS,
    base=timedelta(seconds=1),
    cap=timedelta(minutes=10),
)


class EndOfChild(BaseModel):
    """The end of a child job, as `domain/jobs/completion.py` writes it."""

    parent: str
    child: str
    state: str
    generation: int = 0


def telling_parents(engine: Engine) -> Capability[EndOfChild, bool]:
    """Return the capability; its jobs are in the queues of the parents."""

    @capability(TELL_PARENT, queue="backburner.parents", retry=RETRY)
    async def tell(ctx: Context, end: EndOfChild) -> bool:
        """Signal a parent, unless it has ended or was signalled before."""
        parents = await engine.store.find([end.parent])
        if not parents or ctx.job.owner != parents[0].owner:
            return False
        value = orjson.dumps({"state": end.state}).decode()
        signal = Signal(child_wait(end.child, end.generation), value)
        answer = await engine.store.signal(parents[0].seq, signal)
        if answer.is_woken:
            engine.woken(parents[0])
        return answer.is_woken

    return tell
