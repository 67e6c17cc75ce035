"""
The life of an attempt.

1. `Worker._claim` takes the job from the store, and `Worker._begin` starts `run`.
2. `run` prepares the input, calls the handler and flushes what the handler wrote.
3. `Worker._settle` gives the outcome to the settler, which stores it.

`outcomes.py` decides what an answer or an exception means.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from backburner.domain.blobs.blob import is_large
from backburner.domain.errors import (
    BlobMissing,
    ClaimLost,
    StoreUnavailable,
    readable,
)
from backburner.domain.groups.flow import FROM_NEEDS
from backburner.domain.jobs.job import Claim, Need
from backburner.domain.jobs.outcome import Done, Failed, Outcome, Suspension
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.models.shapes import mistakes
from backburner.engine.models.spending import Spending
from backburner.engine.models.usage import UsageLog
from backburner.engine.registry import Capability
from backburner.engine.run.context import Context
from backburner.engine.run.needs import input_of, is_apart, whole
from backburner.engine.run.outcomes import (
    Interruption,
    classify,
    of_answer,
    of_exception,
    of_interruption,
    of_unknown,
)
from backburner.engine.run.services import Services
from backburner.engine.run.streaming import OutputStream
from backburner.engine.submit import guarding
from backburner.ports.log import log

CANCELLED_INSIDE = "CANCELLED_INSIDE"
MOST_FAULTS = 5
STOW_RETRY_SECONDS = 0.2


class _Fetched(NamedTuple):
    """An input and the outputs of earlier steps, as JSON."""

    text: str
    needs: Sequence[Need]


class Attempt:
    """Runs the handler of one claimed job."""

    __slots__ = (
        "capability",
        "claim",
        "context",
        "filled",
        "has_ended",
        "has_submitted",
        "interruption",
        "is_put_off",
        "is_started",
        "task",
        "unknown_wait",
    )

    def __init__(self, claim: Claim, capability: Capability[Any, Any] | None) -> None:
        self.claim = claim
        self.capability = capability
        self.context: Context | None = None
        self.interruption: Interruption | None = None
        self.is_started = False
        self.has_ended = False
        """Whether the handler has returned and its output is being stored."""
        self.has_submitted = False
        """Whether the settlement submitted jobs."""
        self.filled: Collection[int] = ()
        """Batches to which the settlement added members."""
        self.is_put_off = False
        """Whether the settlement changed nothing and must be tried again."""
        self.task: asyncio.Task[None] | None = None
        self.unknown_wait = timedelta()
        """How long the job waits if this worker does not have its capability."""

    def interrupt(self, why: Interruption) -> None:
        """Stop the handler at its next await; the first reason counts."""
        if self.interruption is None:
            self.interruption = why
            if self.is_started and self.task is not None:
                self.task.cancel()

    async def run(self, services: Services) -> Outcome | None:
        """
        Prepare the input, call the handler and flush its output; return the outcome.

        Returns `None` if this worker no longer holds the job.
        """
        self.is_started = True
        if self.interruption is not None:
            return of_interruption(self.interruption)
        if self.capability is None:
            return of_unknown(self.claim, self.unknown_wait)
        text, needs = self.claim.input, self.claim.given
        if is_apart(text) or (needs and any(is_apart(n.output) for n in needs)):
            fetched = await self._fetched(services.payloads)
            if not isinstance(fetched, _Fetched):
                return fetched
            text, needs = fetched
        value, refusal = _validated(self.capability, text, needs)
        if refusal is not None:
            return refusal
        self.context = context = Context(self.claim, services, needs)
        outcome = await self._handle(self.capability, context, services.payloads, value)
        if context.spent or context.output_stream:
            outcome = await self._flush(context, services, outcome)
        return outcome

    async def _fetched(self, payloads: Payloads) -> "_Fetched | Outcome | None":
        """Read inputs and outputs from the blob store, or return a failure."""
        outcome: Outcome
        try:
            text = self.claim.input
            return _Fetched(
                await payloads.text(text) if is_apart(text) else text,
                await whole(self.claim.given, payloads),
            )
        except asyncio.CancelledError:
            outcome = Failed(
                CANCELLED_INSIDE, "the attempt was cancelled by its own code"
            )
        except BlobMissing:
            message = "the job's input no longer exists"
            return Failed(BlobMissing.code, message, retryable=False)
        except StoreUnavailable as error:
            outcome = Failed(error.code, "the job's input cannot be read at the moment")
        if self.interruption is not None:
            return of_interruption(self.interruption)
        return outcome

    async def _handle(
        self,
        capability: Capability[Any, Any],
        context: Context,
        payloads: Payloads,
        value: Any,
    ) -> Outcome | None:
        """Call the handler; return the outcome of its answer or exception."""
        outcome: Outcome
        try:
            answer = await capability.handler(context, value)
            context.is_over = True
            outcome = of_answer(capability, answer)
            if context.output_stream is not None:
                _conclude(context.output_stream, outcome)
            if isinstance(outcome, Done) and is_large(outcome.output):
                outcome = await self._stowed(outcome.output, payloads)
        except asyncio.CancelledError:
            outcome = Failed(
                CANCELLED_INSIDE, "the handler was cancelled by its own code"
            )
        except (KeyboardInterrupt, GeneratorExit):  # the event loop has ended
            raise
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything
            outcome = of_exception(error)
        context.end()
        if context.has_steps:
            await self._part(context, outcome)
        spent = context.spent
        if self.interruption is not None:
            return of_interruption(self.interruption)
        paid = outcome if spent is None else _paid(outcome, spent)
        return _with_all_waits(paid, context)

    async def _stowed(self, output: str, payloads: Payloads) -> Done:
        """Move a large output to the blob store; retry until it is stored."""
        while True:
            try:
                return Done(await payloads.stow_output(self.claim, output))
            except StoreUnavailable as error:
                log.warning("output not stored", job_id=self.claim.id, code=error.code)
                await asyncio.sleep(STOW_RETRY_SECONDS)  # noqa: TID251 - see watch

    async def _part(self, context: Context, outcome: Outcome) -> None:
        """Store the results of the run's steps if a later run may need them."""
        if self.interruption is not Interruption.LOST:
            with suppress(asyncio.CancelledError, ClaimLost):
                if isinstance(outcome, Suspension):
                    await context.waits_begun()
                    await context.flush()  # or the next run would pay again
                await context.part(is_done=isinstance(outcome, Done))

    async def _flush(
        self, context: Context, services: Services, outcome: Outcome | None
    ) -> Outcome | None:
        """Wait until prices are known and the output is stored; return the outcome."""
        if self.usage_log is not None and services.usage_sink is not None:
            with suppress(asyncio.CancelledError):
                await services.usage_sink.ready()
        if context.output_stream is None or outcome is None:
            return outcome
        self.has_ended = True
        return await self._stored(context.output_stream, outcome)

    async def _stored(
        self, output_stream: OutputStream, outcome: Outcome
    ) -> Outcome | None:
        """Return the outcome once the store has all of the attempt's output."""
        try:
            await output_stream.told()
        except asyncio.CancelledError:
            lost = Failed(CANCELLED_INSIDE, "the attempt was cancelled by its own code")
            return lost if self.interruption is None else self.came_to()
        except Exception as error:  # noqa: BLE001 - the stored text is incomplete
            return classify(error)
        return outcome

    @property
    def usage_log(self) -> UsageLog | None:
        """Return the usage of the handler's model calls, if there was any."""
        context = self.context
        return (
            None
            if context is None or context.spent is None
            else context.spent.usage_log
        )

    def came_to(self) -> Outcome | None:
        """Return the outcome of an interrupted attempt, whatever its handler does."""
        return None if self.interruption is None else of_interruption(self.interruption)


def _validated(
    capability: Capability[Any, Any], text: str, needs: Sequence[Need]
) -> tuple[Any, Failed | None]:
    """Return the handler's validated input, or a failure."""
    try:
        fed = _fed(capability, needs) if text == FROM_NEEDS else text
        return capability.input.validator.validate_json(fed), None
    except ValidationError as error:
        message = readable(mistakes(error, MOST_FAULTS))
        return None, Failed("INVALID_INPUT", message, retryable=False)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a validator may raise anything
        return None, classify(error)


def _fed(capability: Capability[Any, Any], needs: Sequence[Need]) -> str:
    """Build a step's input from its prerequisites and check it with the guard."""
    text = input_of(needs)
    guarding.check_fed(capability, text)
    return text


def _conclude(output_stream: OutputStream, outcome: Outcome) -> None:
    """Make the streamed text equal to the result if the result is a text."""
    if isinstance(outcome, Done):
        if outcome.output.startswith('"'):
            output_stream.conclude(orjson.loads(outcome.output))
        output_stream.finish()


def _paid(outcome: Outcome, spent: Spending) -> Outcome:
    """Record in a failure whether a model call was paid for."""
    if spent.has_paid and isinstance(outcome, Failed):
        return outcome._replace(is_paid=True)
    return outcome


def _with_all_waits(outcome: Outcome, context: Context) -> Outcome:
    """Let a run that waits name its waits, which a signal may decide meanwhile."""
    if isinstance(outcome, Suspension):
        return context.all_waits(outcome)
    return outcome
