"""Steps, waits, child jobs and questions of a handler: each happens once per job."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import lru_cache, partial
from inspect import isawaitable
from types import FunctionType
from typing import Any, TypeVar, Unpack, get_type_hints, overload

from pydantic_core import to_json

from backburner.domain.jobs.job import Owner
from backburner.domain.jobs.outcome import Suspension
from backburner.domain.jobs.step import InDoubt
from backburner.engine.flow import Typed
from backburner.engine.options import SubmitOptions
from backburner.engine.run.base_context import BaseContext
from backburner.engine.run.children import Children
from backburner.engine.run.questions import NO_DEFAULT, Questions, Resolution
from backburner.engine.run.services import inherited
from backburner.engine.run.steps import NOT_DONE, Once
from backburner.engine.run.waiting import Waiting

T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out")


class StepContext(BaseContext):
    """The part of the context for steps, and for waits that hold no slot."""

    __slots__ = ()

    @overload
    async def step(
        self,
        name: str,
        compute: Callable[..., Awaitable[T]],
        *args: Any,
        into: Any = None,
        once: bool = False,
        reconcile: Callable[..., Any] | None = None,
        in_doubt: str = InDoubt.FAIL,
        **named: Any,
    ) -> T: ...

    @overload
    async def step(
        self,
        name: str,
        compute: Callable[..., T],
        *args: Any,
        into: Any = None,
        once: bool = False,
        reconcile: Callable[..., Any] | None = None,
        in_doubt: str = InDoubt.FAIL,
        **named: Any,
    ) -> T: ...

    async def step(
        self,
        name: str,
        compute: Callable[..., Any],
        *args: Any,
        into: Any = None,
        once: bool = False,
        reconcile: Callable[..., Any] | None = None,
        in_doubt: str = InDoubt.FAIL,
        **named: Any,
    ) -> Any:
        """
        Compute a result once for this job: `await ctx.step("charge", charge, order)`.

        The result is stored before this returns. If the handler runs again, after a
        crash, a failed attempt or a retry, it gets the stored result and `compute` is
        not called. After a crash before the result is stored, `compute` is called
        again. A name can be used once in a run. The result is read back as `into`,
        otherwise as the return type of `compute`, otherwise as JSON.

        With `once`, the begin of the step is stored before `compute` is called. After a
        crash in between, `reconcile` is called with the same arguments: it returns the
        result if the step happened, otherwise `NOT_DONE`. Without it, `in_doubt` says
        what to do: `fail` the job, `retry` the step, or `ask_person`.
        """

        def running(function: Callable[..., Any]) -> Callable[[], Awaitable[Any]]:
            async def run() -> Any:
                value = function(*args, **named)
                return await value if isawaitable(value) else value

            return run

        shape = into or _return_type(compute)
        policy = InDoubt(in_doubt)
        check = None if reconcile is None else running(reconcile)
        if check is None and policy is InDoubt.ASK_PERSON:
            check = partial(self._ask_whether_done, name, shape)
        guard = Once(check, policy) if once or check else None
        return await self.steps.named(name, running(compute), shape, guard)

    async def _ask_whether_done(self, step: str, shape: Any) -> Any:
        """Ask a person whether a step happened; return its result or `NOT_DONE`."""
        into = Resolution.__class_getitem__(shape)
        answer = await self.ask_person(
            f"Step {step!r} of this job began, and its worker was lost before it "
            "reported a result. Did the step happen, and with which result?",
            into=into,
        )
        return answer.result if answer.done else NOT_DONE

    async def forget(self, step: str | None = None) -> None:
        """
        Discard a step's stored result, so that the next run computes it again.

        Without a name, discard the answer of this run's last model call: for a handler
        that rejects an answer and raises so that the model is asked again.
        """
        await self.steps.forget(step)

    @property
    def waiting(self) -> Waiting:
        """The waits of this run."""
        if self._waiting is None:
            services = self._services
            self._waiting = Waiting(
                self._claim,
                services.engine,
                self.steps,
                now=self.spending.now,
                lose=services.lose,
            )
        return self._waiting

    async def waits_begun(self) -> None:
        """Return when the waits beside the one that ends the run are stored."""
        if self._waiting is not None:
            await self._waiting.begun()

    def all_waits(self, suspension: Suspension) -> Suspension:
        """Return how this run ends, with all that it waits for."""
        if self._waiting is None:
            return suspension
        return self._waiting.all_of(suspension, self.spending.suspended)

    async def sleep(self, delay: float | timedelta) -> None:
        """
        Wait without holding a slot: `await ctx.sleep(60)`, or a `timedelta`.

        The job is `scheduled` meanwhile and uses no attempt. Then the handler runs
        again from the top, gets the results of its steps and passes the sleep. The
        first run decides when the sleep ends.
        """
        await self.waiting.sleep(delay)

    @overload
    async def wait(
        self,
        name: str,
        *,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - of the job
        into: type[T],
    ) -> T: ...

    @overload
    async def wait(
        self,
        name: str,
        *,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - of the job
        into: None = None,
    ) -> Any: ...

    async def wait(
        self,
        name: str,
        *,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - of the job
        into: Any = None,
    ) -> Any:
        """
        Wait for a signal and return its value: `await ctx.wait("paid", into=Payment)`.

        The job is `waiting` meanwhile: it holds no slot and uses no attempt. The signal
        may have come before. If none comes in time, `WaitTimedOut` is raised.
        """
        return await self.waiting.signal(name, timeout, into)

    @overload
    async def run(
        self, capability: Typed[In, Out], value: In, **options: Unpack[SubmitOptions]
    ) -> Out: ...

    @overload
    async def run(
        self, capability: str, value: Any, **options: Unpack[SubmitOptions]
    ) -> Any: ...

    async def run(
        self, capability: Any, value: Any, **options: Unpack[SubmitOptions]
    ) -> Any:
        """
        Run another job and return its output; takes the options of `submit`.

        This job is `waiting` meanwhile and holds no slot. The child is submitted once
        and its output is stored as a step. `ChildFailed` is raised if it fails or is
        cancelled. The child continues if this job is cancelled.
        """
        services = self._services
        if self._children is None:
            self._children = Children(
                self._claim,
                self.steps,
                self.waiting,
                services.engine,
                services.payloads,
            )

        async def submit(key: str) -> str:
            chosen: Any = {
                **inherited(self._claim),
                "idempotency_key": key,
                **options,
                "owner": Owner(self._claim.tenant, self._claim.user),
                "parent": {"id": self._claim.id, "queue": self._claim.queue},
            }
            return str((await services.submit(capability, value, **chosen)).id)

        is_name = isinstance(capability, str)
        name = capability if is_name else capability.name
        output = await self._children.run(name, value, submit)
        return output if is_name else capability.output.validate_json(to_json(output))

    async def ask_person(
        self,
        question: str,
        *,
        into: Any = None,
        choices: Sequence[str] | None = None,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - of the job
        default: Any = NO_DEFAULT,
        name: str | None = None,
    ) -> Any:
        """
        Ask a person: `await ctx.ask_person("Send it?", choices=["yes", "no"])`.

        The job is `waiting` until its owner, or a key with the scope `questions:answer`
        in its tenant, answers. An answer is one of the `choices` and matches `into`. If
        none comes in time, the `default` is returned, or `WaitTimedOut` is raised if
        there is none. A question is identified by its text, or by `name` if given.
        """
        if self._questions is None:
            self._questions = Questions(self.waiting)
        return await self._questions.ask(
            question,
            into=into,
            choices=choices,
            limit=timeout,
            default=default,
            name=name,
        )


def _return_type(compute: Callable[..., Any]) -> Any:
    """Return the annotated return type of a function; `Any` if there is none."""
    if "return" not in getattr(compute, "__annotations__", ()):
        return Any
    # A nested function is a new object each time, so it is not cached.
    is_lasting = isinstance(compute, FunctionType) and (
        "<locals>" not in compute.__qualname__
    )
    return _known_hint(compute) if is_lasting else _hint(compute)


def _hint(compute: Callable[..., Any]) -> Any:
    try:
        return get_type_hints(compute).get("return", Any)
    except Exception:  # noqa: BLE001 - a name in it may not be known
        return Any


_known_hint: Callable[[Callable[..., Any]], Any] = lru_cache(maxsize=256)(_hint)
