"""
Steps of a handler: their results are stored and read by later runs of the job.

A named step is stored before `ctx.step` returns. The answer of a model call is stored a
moment later, or before the handler does anything else that lasts. A handler that
succeeds right after its last call needs no stored answer, so nothing is written.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

import orjson
from pydantic import TypeAdapter

from backburner.domain.ai import Trouble
from backburner.domain.blobs.blob import is_large
from backburner.domain.costs.usage import RunUsage
from backburner.domain.errors import (
    ClaimLost,
    PermanentError,
    StoreUnavailable,
    WorkError,
    readable,
)
from backburner.domain.events.event import STEP_CHANGED
from backburner.domain.jobs.job import Claim, Instant
from backburner.domain.jobs.step import (
    DRAFT,
    FORKED_STEP,
    MAX_STEP_NAME,
    MAX_STEPS,
    NAMED,
    NOT_CALLS,
    InDoubt,
    StepResult,
    StoredStep,
    draft_key,
    named_key,
    request_key,
)
from backburner.domain.jobs.wait import Suspended
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.models.spending import Spending
from backburner.engine.models.usage import FIRST_RUN
from backburner.ports.log import log

MOMENT_SECONDS: Final = 0.005
"""How long to wait after a model's answer for the run to end."""
RETRY_SECONDS: Final = 0.5
PARTING_SECONDS: Final = 2.0
"""How long a failed run waits until its answers are stored."""

_path: ContextVar[tuple[str, ...]] = ContextVar("step_path", default=())
"""The named steps that enclose the running code."""
_calling: ContextVar[StepResult | None] = ContextVar("model_call", default=None)
"""The model call that the running code makes, as a result to store."""
CHARACTERS: Final = 4
"""Estimated characters of a request per token."""


class StepStorage(Protocol):
    """Stores the results of steps."""

    async def save_steps(
        self, results: Sequence[StepResult], bookings: Sequence[RunUsage] = ()
    ) -> Sequence[bool]:
        """Store results with the usage of their runs; see `StepStore`."""
        ...

    async def steps_of(self, job: int) -> Sequence[StoredStep]:
        """Return the stored results of a job."""
        ...

    async def forget_step(self, job: int, token: str, key: str) -> bool:
        """Delete a result; `False` if the job is no longer held."""
        ...

    async def withdraw_step(self, job: int, token: str, key: str) -> bool:
        """Record that a step that had begun did not happen."""
        ...


class NotDone(Enum):
    """What `reconcile` returns if a step did not happen."""

    NOT_DONE = "not done"


NOT_DONE: Final = NotDone.NOT_DONE


class Once(NamedTuple):
    """How a `once` step continues after a crash."""

    reconcile: Callable[[], Awaitable[Any]] | None
    """Returns the result if the step happened, otherwise `NOT_DONE`."""
    in_doubt: InDoubt


class Step(NamedTuple):
    """A step that the handler has reached."""

    key: str
    kind: str
    name: str
    adapter: TypeAdapter[Any]

    def dump(self, value: Any) -> str:
        """Return the result as JSON; raise `PermanentError` if that is impossible."""
        try:
            text = self.adapter.dump_json(value, by_alias=True, warnings="error")
        except Exception as error:
            raise PermanentError(
                readable(
                    f"the result of step {self.name!r} cannot be stored: {error}. "
                    "Return a value that Pydantic can serialise, or pass its type as "
                    "`into`"
                ),
                code="STEP_NOT_SERIALISABLE",
            ) from error
        return text.decode()

    def load(self, text: str) -> Any:
        """Return a stored result; raise `PermanentError` if the type has changed."""
        try:
            return self.adapter.validate_json(text)
        except ValueError as error:
            raise PermanentError(
                f"the stored result of step {self.name!r} does not match the type that "
                "the handler expects now. Retry the job with fresh=true to run its "
                "steps again",
                code="STEP_MISMATCH",
            ) from error


class Busy:
    """Counts what a run has begun that must be stored before it is suspended."""

    def __init__(self) -> None:
        self._count = 0
        self._is_over = asyncio.Event()

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_error: object) -> None:
        self._count -= 1
        if not self._count:
            self._is_over.set()

    async def rest(self) -> None:
        """Wait until nothing is under way."""
        while self._count:
            self._is_over.clear()
            await self._is_over.wait()


class StepJournal:
    """The steps of one run of a job."""

    def __init__(
        self,
        claim: Claim,
        storage: StepStorage | None,
        payloads: Payloads,
        spending: Spending,
        *,
        lose: Callable[[Claim], None] | None = None,
        report: Callable[[str, dict[str, Any]], None] | None = None,
    ) -> None:
        """
        Create it; without `storage` nothing is stored and each step is computed.

        `lose` is called if another worker holds the job, `report` with the type and
        data of an event.
        """
        self._claim = claim
        self._storage = storage if claim.token else None
        self._payloads = payloads
        self._spending = spending
        self._lose = lose
        self._report = report
        self._stored: dict[str, StoredStep] | None = None
        self._unread: set[str] = set()
        self._seen: set[str] = set()
        self._drafts: set[str] = set()
        self._replay: deque[StoredStep] = deque()
        """Results of a fork, which are used in order."""
        self._active: Counter[tuple[str, ...]] = Counter()
        """The number of running steps, by their enclosing steps."""
        self._are_concurrent = False
        self._open: dict[str, StoredStep] = {}
        """Steps that an earlier run began and did not end."""
        self._openings: dict[str, StepResult] = {}
        """Model calls in progress that are not recorded in the store yet."""
        self._opened: set[str] = set()
        self._counts: Counter[tuple[tuple[str, ...], str, bytes]] = Counter()
        self._pending: list[StepResult] = []
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._loading = asyncio.Lock()
        self._last_call: str | None = None
        self._written, self._is_lost = 0, False
        # Model calls that are under way, and waits that begin.
        self.busy = Busy()
        spending.began = self._began

    async def named(
        self,
        name: str,
        compute: Callable[[], Awaitable[Any]],
        into: Any,
        once: Once | None = None,
    ) -> Any:
        """Return the stored result of a named step, or compute it."""
        path = (*_path.get(), _checked_name(name))
        step = Step(named_key(path), NAMED, name, adapter_of(into))
        if step.key in self._seen:
            raise PermanentError(
                f"step {name!r} runs twice in one run of the job. Give each step its "
                "own name, for example with a number",
                code="STEP_REPEATED",
            )
        self._seen.add(step.key)
        stored = await self._find(step)
        if stored is not None:
            return step.load(stored)
        await self.flush()
        outer = _path.set(path)
        self._enter(path[:-1])
        began = self._spending.now()
        try:
            value = await (
                compute() if once is None else self._once(step, compute, once)
            )
        finally:
            self._active[path[:-1]] -= 1
            _path.reset(outer)
        text = step.dump(value)
        await self._keep(step, text, began)
        await self.flush()
        return step.load(text)

    async def _once(
        self, step: Step, compute: Callable[[], Awaitable[Any]], once: Once
    ) -> Any:
        """Compute a step whose begin is stored, or find out if it happened."""
        if step.key in self._open:
            value = await self._resolved(step, once)
            if value is not NOT_DONE:
                return value
        if self._storage is not None:
            self._pending.append(self._result(step, "")._replace(is_open=True))
            await self.flush()
        try:
            return await compute()
        except (WorkError, Suspended):
            # Either the function says that it did not happen, or it waits and will run
            # again.
            await self._withdraw(step.key)
            raise

    async def _resolved(self, step: Step, once: Once) -> Any:
        """Return the result of a step in doubt, or `NOT_DONE`; raise if unknown."""
        if once.reconcile is not None:
            return await once.reconcile()
        if once.in_doubt is InDoubt.RETRY:
            return NOT_DONE
        raise PermanentError(
            f"step {step.name!r} is in doubt: an earlier run began it and was lost "
            "before its result was stored. Find out whether it happened. A retry with "
            "fresh=true runs all steps of the job again",
            code="STEP_IN_DOUBT",
        )

    async def _withdraw(self, key: str) -> None:
        """Record that a step that had begun did not happen."""
        await self.flush()
        if self._storage is None:
            return
        claim = self._claim
        verb = self._storage.withdraw_step
        if not await self.persist(verb, claim.seq, claim.token, key):
            self._give_up()

    async def call(
        self,
        kind: str,
        request: bytes,
        compute: Callable[[str], Awaitable[Any]],
        into: Any,
    ) -> tuple[Any, bool]:
        """
        Return a model's answer and whether an earlier run stored it.

        `compute` is given the key of the step.
        """
        path = _path.get()
        counted = (path, kind, request)
        key = request_key(path, kind, request, self._counts[counted])
        self._counts[counted] += 1
        step = Step(key, kind, kind, adapter_of(into))
        stored = await self._find(step)
        if stored is not None:
            return step.load(stored), True
        with nullcontext() if kind in NOT_CALLS else self.busy:
            await self.flush()
            began = self._spending.now()
            value = await self._called(step, len(request), compute)
            text = step.dump(value)
            await self._keep(step, text, began)
        self._flush_soon()
        return step.load(text), False

    async def _called(
        self, step: Step, size: int, compute: Callable[[str], Awaitable[Any]]
    ) -> Any:
        """Make a model call; record a slow one as begun, so that a crash is noticed."""
        opening = self._result(step, "")._replace(
            is_open=True, expected=size // CHARACTERS
        )
        outer, path = _calling.set(opening), _path.get()
        self._enter(path)
        try:
            return await compute(step.key)
        except WorkError as error:
            self._openings.pop(step.key, None)
            if step.key in self._opened and error.problem_code != Trouble.TIMEOUT:
                self._opened.discard(step.key)
                await self._withdraw(step.key)
            raise
        finally:
            self._active[path] -= 1
            _calling.reset(outer)

    def _enter(self, path: tuple[str, ...]) -> None:
        """Record that a step begins, and whether others run concurrently with it."""
        self._active[path] += 1
        if self._active[path] > 1:
            self._are_concurrent = True

    def _began(self) -> None:
        """Record that a model call has begun."""
        opening = _calling.get()
        if opening is None or self._storage is None or opening.key in self._opened:
            return
        self._openings[opening.key] = opening
        self._flush_soon()

    async def forget(self, name: str | None = None) -> None:
        """
        Discard a stored result, so that the next run computes it again.

        Without a name, discard that of the last model call of this run.
        """
        await self.flush()
        key = self._last_call if name is None else named_key((*_path.get(), name))
        if key is None or self._storage is None:
            return
        await self._discard(self._storage, key)
        if name is None and draft_key(key) in self._drafts:
            await self._discard(self._storage, draft_key(key))

    async def draft(self, call: str, into: Any) -> Any:
        """Return the stored answer that a model call is asked to correct, if any."""
        step = Step(draft_key(call), DRAFT, DRAFT, adapter_of(into))
        if self._storage is None:
            return None
        stored = (await self._load(self._storage)).get(step.key)
        if stored is None:
            return None
        self._drafts.add(step.key)
        return step.load(await self._payloads.text(stored.result))

    async def keep_draft(self, call: str, value: Any, into: Any) -> None:
        """Store an answer before the model is asked to correct it."""
        step = Step(draft_key(call), DRAFT, DRAFT, adapter_of(into))
        self._drafts.add(step.key)
        await self._keep(step, step.dump(value))
        await self.flush()

    async def drop_draft(self, call: str) -> None:
        """Discard an answer whose correction cannot be used either."""
        await self.flush()
        if self._storage is not None:
            await self._discard(self._storage, draft_key(call))

    async def _discard(self, storage: StepStorage, key: str) -> None:
        claim = self._claim
        if not await storage.forget_step(claim.seq, claim.token, key):
            self._give_up()
            raise ClaimLost(claim.id)
        self._seen.discard(key)
        if self._stored is not None:
            self._stored.pop(key, None)

    async def flush(self) -> None:
        """Return when all results are stored; raise `ClaimLost` if they are not."""
        while (saving := self._saving()) is not None:
            await asyncio.shield(saving)
        if self._is_lost:
            raise ClaimLost(self._claim.id)

    async def part(self, *, is_done: bool) -> None:
        """End the run; after a success, results need not be stored."""
        self._cancel_timer()
        self._openings.clear()
        if is_done:
            self._pending.clear()
        try:
            async with asyncio.timeout(PARTING_SECONDS):
                await self.flush()
        except (ClaimLost, TimeoutError):
            return
        except Exception as error:  # noqa: BLE001 - the outcome is decided already
            log.error("step not stored", error_type=type(error).__name__)

    def _saving(self) -> "asyncio.Task[None] | None":
        """Return the task that stores results; `None` if there is nothing to store."""
        if self._flushing is not None and not self._flushing.done():
            return self._flushing
        self._flushing = None
        if self._pending:
            self._begin_saving()
        return self._flushing

    def _begin_saving(self) -> None:
        self._cancel_timer()
        self._flushing = asyncio.create_task(self._save())

    async def _find(self, step: Step) -> str | None:
        """Return the stored result of a step, if there is one."""
        if self._storage is None:
            return None
        stored = await self._load(self._storage)
        saved = stored.get(step.key)
        if saved is None and self._replay and not _path.get():
            saved = self._next_of_fork(step)
        if saved is not None:
            self._unread.discard(step.key)
            self._note(step)
            return await self._payloads.text(saved.result)
        if self._unread and self._report is not None:
            # Either the code has changed since, or its input.
            self._report(STEP_CHANGED, {"step": step.name, "unread": len(self._unread)})
            self._unread.clear()
        return None

    def _next_of_fork(self, step: Step) -> StoredStep:
        """Return the next result of a fork; only its kind and name are compared."""
        stored = self._replay.popleft()
        is_same = stored.kind == step.kind and (
            stored.kind != NAMED or stored.name == step.name
        )
        if not is_same:
            raise PermanentError(
                f"the fork has a result of {stored.kind} {stored.name!r} where its "
                f"handler asks for {step.kind} {step.name!r}: fork the job from an "
                "earlier step",
                code="STEP_MISMATCH",
            )
        return stored

    def _note(self, step: Step) -> None:
        if step.kind not in NOT_CALLS:
            self._last_call = step.key

    async def _load(self, storage: StepStorage) -> dict[str, StoredStep]:
        async with self._loading:
            if self._stored is None:
                results = await self.persist(self._read, storage)
                self._stored = {step.key: step for step in results if step.size}
                in_order = (s for s in results if s.key.startswith(f"{FORKED_STEP}/"))
                self._replay.extend(in_order)
                self._open = {s.key: s for s in results if s.is_open and not s.size}
                self._unread = {s.key for s in results if s.kind != DRAFT and s.size}
                self._unread -= {s.key for s in self._replay}
        return self._stored

    async def _read(self, storage: StepStorage) -> Sequence[StoredStep]:
        claim = self._claim
        is_first = claim.events <= FIRST_RUN and not claim.generation
        return () if is_first else await storage.steps_of(claim.seq)

    async def _keep(self, step: Step, text: str, began: Instant | None = None) -> None:
        """Add a result to those that will be stored."""
        self._note(step)
        if self._storage is None:
            return
        self._written += 1
        if self._written + len(self._stored or ()) > MAX_STEPS:
            raise PermanentError(
                f"a job may store {MAX_STEPS:,} steps. Do several things in one step, "
                "or split the job",
                code="STEP_LIMIT",
            )
        if is_large(text):
            text = await self._payloads.stow_step(self._claim, self._written, text)
        self._openings.pop(step.key, None)
        self._pending.append(self._result(step, text, began))

    def _result(
        self, step: Step, text: str, began: Instant | None = None
    ) -> StepResult:
        claim, now = self._claim, self._spending.now()
        return StepResult(
            job=claim.seq,
            token=claim.token,
            key=step.key,
            kind=step.kind,
            name=step.name,
            epoch=claim.events,
            at=now,
            result=text,
            is_concurrent=self._are_concurrent,
            # A clock that is set back must not make it negative.
            duration_ms=None if began is None else max(0, now - began),
        )

    def _flush_soon(self) -> None:
        if (self._pending or self._openings) and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(MOMENT_SECONDS, self._begin_flush)

    def _begin_flush(self) -> None:
        self._timer = None
        if self._saving() is None and self._openings:
            self._begin_saving()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _save(self) -> None:
        """Store pending results, with usage that is not recorded yet."""
        storage = self._storage
        results, self._pending = self._pending, []
        results += self._openings.values()
        self._opened |= self._openings.keys()
        self._openings.clear()
        if storage is None or not results:
            return
        booking = await self._spending.booking()
        bookings = () if booking is None else (booking,)
        held = await self.persist(storage.save_steps, results, bookings)
        if booking is not None:
            self._spending.booked(booking)
        if not all(held):
            self._give_up()

    def _give_up(self) -> None:
        self._is_lost = True
        if self._lose is not None:
            self._lose(self._claim)

    async def persist(self, verb: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Retry while the store is unavailable, so that paid results are not lost."""
        while True:
            try:
                return await verb(*args)
            except StoreUnavailable as error:
                log.warning("step not stored", job_id=self._claim.id, code=error.code)
            await asyncio.sleep(RETRY_SECONDS)  # noqa: TID251 - no event to wait for


def _checked_name(name: str) -> str:
    if not name or len(name) > MAX_STEP_NAME:
        raise PermanentError(
            f"a step's name has 1 to {MAX_STEP_NAME} characters, this one has "
            f"{len(name)}",
            code="STEP_NAME",
        )
    return name


_known: Callable[[Any], TypeAdapter[Any]] = lru_cache(maxsize=256)(TypeAdapter)


def adapter_of(into: Any) -> TypeAdapter[Any]:
    """Return the adapter of a type, cached if the type is hashable."""
    try:
        return _known(into)
    except TypeError:  # the type is not hashable
        return TypeAdapter(into)


def request_of(**parts: Any) -> bytes:
    """Return a request as bytes; equal requests give equal bytes."""
    return orjson.dumps(parts, option=orjson.OPT_SORT_KEYS, default=str)
