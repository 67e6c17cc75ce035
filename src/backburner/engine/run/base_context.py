"""The base of the handler context: the claim, the output and the steps."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backburner.domain.errors import StoreUnavailable, readable
from backburner.domain.jobs.job import Claim, Need, Owner
from backburner.engine.blobs.payloads import JobBlobs
from backburner.engine.flow import Flow
from backburner.engine.models.asking import Asker
from backburner.engine.models.spending import Spending
from backburner.engine.models.usage import FIRST_RUN
from backburner.engine.run.children import Children
from backburner.engine.run.needs import StepInput, given
from backburner.engine.run.questions import Questions
from backburner.engine.run.services import JobInfo, Services
from backburner.engine.run.steps import StepJournal
from backburner.engine.run.streaming import MOST_UNTOLD, OutputStream
from backburner.engine.run.waiting import Waiting
from backburner.engine.transaction import Transaction
from backburner.ports.log import log

LARGEST_WHOLE = 2**53


class BaseContext:
    """The state of one attempt; `Context` adds what a handler can call."""

    __slots__ = (
        "_asker",
        "_blobs",
        "_bodies",
        "_children",
        "_claim",
        "_flow",
        "_following",
        "_given",
        "_needs",
        "_questions",
        "_services",
        "_steps",
        "_waiting",
        "is_over",
        "output_stream",
        "spent",
    )

    def __init__(
        self, claim: Claim, services: Services, needs: Sequence[Need] = ()
    ) -> None:
        self._claim = claim
        self._services = services
        self._asker: Asker | None = None
        self._steps: StepJournal | None = None
        self._waiting: Waiting | None = None
        self._children: Children | None = None
        self._questions: Questions | None = None
        self.output_stream: OutputStream | None = None
        """Progress and text emitted so far, if any."""
        self.is_over = False
        """Whether the handler has ended."""
        self._blobs: JobBlobs | None = None
        self._bodies: list[Callable[[Transaction], None]] | None = None
        self._flow: Flow | None = None
        self._following: asyncio.Future[None] | None = None
        self._needs = needs
        self._given: Mapping[str, StepInput] | None = None
        self.spent: Spending | None = None
        """The spending, once it was used."""

    @property
    def spending(self) -> Spending:
        """The model calls of this attempt."""
        if self.spent is None:
            lanes, usage_sink = self._services.lanes, self._services.usage_sink
            patience = 0.0 if lanes is None else lanes.paid_patience
            self.spent = Spending(
                self._claim, usage_sink, patience, is_over=self.is_over
            )
            self.spent.stores = self._services.engine is not None
        return self.spent

    @property
    def needs(self) -> Mapping[str, StepInput]:
        """The results of the prerequisite steps, by name."""
        if self._given is None:
            self._given = given(self._needs)
        return self._given

    @property
    def job(self) -> JobInfo:
        """The job of this attempt."""
        claim = self._claim
        return JobInfo(
            id=claim.id,
            capability=claim.capability,
            queue=claim.queue,
            owner=Owner(claim.tenant, claim.user),
            attempt=claim.attempt,
            max_attempts=claim.max_attempts,
            generation=claim.generation,
            created_at=claim.created_at,
            request_id=claim.request_id,
            step=claim.step,
            traceparent=claim.traceparent,
        )

    async def progress(
        self, done: float, total: float = 1.0, message: str | None = None
    ) -> None:
        """
        Report progress; readers see it live.

        Calls in quick succession are combined: only the latest is stored.
        """
        data: dict[str, Any] = {"done": _number(done), "total": _number(total)}
        if message is not None:
            data["message"] = readable(message)
        self._speak().report(data)

    async def emit(self, text: str) -> None:
        """
        Stream text; readers see it live, and later readers see all of it.

        Calls in quick succession are stored together. If another attempt follows, its
        text is compared with what readers have: they get what is new, or all of it from
        where it differs. If the result is a text, the streamed text is made equal to
        it.
        """
        if self.is_over:
            raise RuntimeError(
                "the handler has ended: its text can no longer be stored"
            )
        output_stream = self._speak()
        if self._following is None and self._is_repeat:
            self._following = asyncio.ensure_future(self._follow(output_stream))
        if self._following is not None:
            await asyncio.shield(self._following)
        output_stream.say(text)
        await output_stream.told(but_for=MOST_UNTOLD)

    @property
    def _is_repeat(self) -> bool:
        """Whether an earlier run of the job may have emitted text."""
        claim = self._claim
        return claim.events > FIRST_RUN or claim.generation > 0

    async def _follow(self, output_stream: OutputStream) -> None:
        """Continue the text that readers have; if it is unknown, start again."""
        storage, claim = self._services.engine, self._claim
        if storage is None or not claim.token:
            return
        try:
            draft = await storage.draft(claim.id, Owner(claim.tenant, claim.user))
        except (StoreUnavailable, ValueError) as error:
            log.warning("streamed text not read", error_type=type(error).__name__)
        else:
            output_stream.follow(draft.text)

    @property
    def text(self) -> str:
        """All text that this attempt has emitted."""
        return "" if self.output_stream is None else self.output_stream.text

    @property
    def steps(self) -> StepJournal:
        """The steps of this run."""
        if self._steps is None:
            services = self._services
            self._steps = StepJournal(
                self._claim,
                services.engine,
                services.payloads,
                self.spending,
                lose=services.lose,
                report=lambda kind, data: self._speak().mark(kind, data),
            )
        return self._steps

    @property
    def has_steps(self) -> bool:
        """Whether this run has used a step."""
        return self._steps is not None

    async def flush(self) -> None:
        """Store the results of model calls before something else happens."""
        if self._steps is not None:
            await self._steps.flush()

    def end(self) -> None:
        """Mark the handler as ended, so that it can do nothing more."""
        self.is_over = True
        if self.spent is not None:
            self.spent.is_over = True

    async def part(self, *, is_done: bool) -> None:
        """End the run's steps; see `StepJournal.part`."""
        if self._steps is not None:
            await self._steps.part(is_done=is_done)

    def _speak(self) -> OutputStream:
        if self.output_stream is None:
            self.output_stream = OutputStream(self._claim, self._services.output_sink)
        return self.output_stream


def _number(value: float) -> float:
    """Return the value as a JSON number; raise if it is not a number."""
    # JSON integers have up to 64 bits: the store would refuse the batch with a larger
    # one.
    is_whole = isinstance(value, int) and abs(value) <= LARGEST_WHOLE
    return value if is_whole else float(value)
