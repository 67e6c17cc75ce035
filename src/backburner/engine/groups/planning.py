"""Validates a flow or batch and prepares it for the store."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from backburner.domain.errors import InvalidInput, UnknownCapability, within
from backburner.domain.groups.batch import NewBatch
from backburner.domain.groups.flow import (
    FROM_NEEDS,
    MAX_EDGES,
    MAX_NAME,
    MAX_STEPS,
    NewFlow,
    NewStep,
    in_order,
    refused,
)
from backburner.engine.flow import NOTHING, Flow, Planned
from backburner.engine.registry import Capability
from backburner.engine.submit.completion import parts
from backburner.engine.submit.completion import said as said_completion
from backburner.engine.submit.submission import (
    GroupOptions,
    Options,
    Submission,
    body_hash,
    check_group,
    input_text,
    instant,
    refused_field,
)
from backburner.engine.submit.type_compatibility import incompatibility

MAX_EXPECTED: Final = 1_000_000


class _Told(BaseModel):
    """The default input of a batch's completion job."""

    id: str
    generation: int
    total: int
    done: int
    members: dict[str, int]
    jobs: dict[str, int]


_TOLD: Final = TypeAdapter(_Told)


class Planning:
    """Validates whole flows and batches and turns them into rows."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission

    def flow(self, flow: Flow, options: GroupOptions) -> NewFlow:
        """Validate a whole flow and prepare its rows, steps in a runnable order."""
        planned = _by_name(flow.steps)
        order = in_order({name: step.needs for name, step in planned.items()})
        now = self._submission.now()
        deadline = instant(options.deadline)
        steps = [self._step(planned[name], planned, options) for name in order]
        for step in steps:
            times = [t for t in (step.job.deadline, deadline) if t is not None]
            step.job.deadline = min(times, default=None)
        check_group(options)
        new = NewFlow(
            id=self._submission.draw("flow", now),
            owner=options.owner,
            created_at=now,
            steps=steps,
            deadline=deadline,
            callback=self._submission.callback(options.callback),
            tags=options.tags,
            request_id=options.request_id,
            traceparent=options.traceparent,
        )
        if options.idempotency_key is not None:
            new.idempotency_key = options.idempotency_key
            new.body_hash = body_hash(
                [[self._said_step(step) for step in flow.steps], _said_group(options)]
            )
        return new

    def batch(
        self,
        options: GroupOptions,
        *,
        expected: int | None,
        sealed: bool,
        completion: Mapping[str, Any] | None,
        said: Any,
    ) -> NewBatch:
        """
        Validate a batch and prepare its row.

        `said` is the body for its idempotency key.
        """
        check_group(options)
        if expected is not None and not 0 <= expected <= MAX_EXPECTED:
            raise refused_field("expected", f"must be from 0 to {MAX_EXPECTED}")
        now = self._submission.now()
        new = NewBatch(
            id=self._submission.draw("batch", now),
            owner=options.owner,
            created_at=now,
            expected=expected,
            sealed=sealed,
            completion=None if completion is None else self._completion(completion),
            callback=self._submission.callback(options.callback),
            tags=options.tags,
            request_id=options.request_id,
            traceparent=options.traceparent,
        )
        if options.idempotency_key is not None:
            new.idempotency_key = options.idempotency_key
            new.body_hash = body_hash([said, _said_group(options)])
        return new

    def _completion(self, completion: Mapping[str, Any]) -> str:
        """
        Prepare the whole completion job.

        The process that ends the batch may not know the capability.
        """
        found = self._find_completion(completion)
        attempts = found.retry.max_attempts
        return to_json(
            {
                **completion,
                "capability": found.name,
                "queue": found.queue,
                "max_attempts": attempts,
            }
        ).decode()

    def _find_completion(self, completion: Mapping[str, Any]) -> Capability[Any, Any]:
        capability, value = parts(completion)
        try:
            found = self._submission.find(capability)
            if value is not NOTHING:
                given = to_json(value, by_alias=True)
                self._submission.guard(found, input_text(found, given))
                return found
            wrong = incompatibility({"batch": _TOLD}, found.input)
        except (InvalidInput, UnknownCapability) as error:
            raise within("completion", error) from None
        if wrong is not None:
            raise refused_field(
                "completion.input",
                f"must be given, because the default input does not match: {wrong}",
            )
        return found

    def step(self, planned: Planned, options: GroupOptions) -> NewStep:
        """Prepare a step that is added to a flow whose other steps are not loaded."""
        return self._step(planned, {}, options)

    def _step(
        self, planned: Planned, others: Mapping[str, Planned], options: GroupOptions
    ) -> NewStep:
        if not _is_step(planned.name):
            raise refused(planned.name, f"1 to {MAX_NAME} printable characters")
        chosen = Options(
            **planned.options,
            owner=options.owner,
            request_id=options.request_id,
            traceparent=options.traceparent,
            key=options.key,
        )
        if chosen.idempotency_key is not None:
            raise refused(
                planned.name, "only the flow as a whole can have an idempotency key"
            )
        try:
            found = self._submission.find(planned.capability)
            text = self._step_input(found, planned, others)
            job = self._submission.job(found, text, chosen)
        except (InvalidInput, UnknownCapability) as error:
            raise within(f"steps.{planned.name}", error) from None
        job.step = planned.name
        return NewStep(job, planned.needs, planned.before)

    def _step_input(
        self,
        found: Capability[Any, Any],
        planned: Planned,
        others: Mapping[str, Planned],
    ) -> str:
        if planned.input is not NOTHING or not planned.needs:
            given = None if planned.input is NOTHING else planned.input
            return input_text(found, given)
        if any(edge.continues for edge in planned.needs):
            raise InvalidInput(
                "it needs its own input, because a prerequisite that may fail can "
                "have no output"
            )
        gives = {
            edge.step: self._submission.find(others[edge.step].capability).output
            for edge in planned.needs
            if edge.step in others
        }
        wrong = (
            incompatibility(gives, found.input)
            if len(gives) == len(planned.needs)
            else None
        )
        if wrong is not None:
            raise InvalidInput(f"the outputs it needs do not match its input: {wrong}")
        return FROM_NEEDS

    def _said_step(self, planned: Planned) -> Any:
        named = self._submission.find(planned.capability).name
        value = None if planned.input is NOTHING else planned.input
        sent = value if isinstance(value, bytes) else to_json(value, by_alias=True)
        options = {**planned.options}
        if "completion" in options:
            options["completion"] = said_completion(options["completion"])
        chosen = to_json(options, by_alias=True)
        parts = orjson.loads(sent), orjson.loads(chosen)
        needs = [[*edge] for edge in planned.needs]
        is_fed = planned.input is NOTHING
        return [planned.name, named, *parts, is_fed, needs, [*planned.before]]


def _is_step(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME and name.isprintable()


def _by_name(steps: Sequence[Planned]) -> dict[str, Planned]:
    """Return steps by name; refuse duplicate names and too many steps."""
    if len(steps) > MAX_STEPS:
        raise refused_field("steps", f"a flow can have at most {MAX_STEPS:,} steps")
    if sum(len(step.needs) for step in steps) > MAX_EDGES:
        raise refused_field(
            "steps", f"a flow can have at most {MAX_EDGES:,} dependencies"
        )
    planned: dict[str, Planned] = {}
    for step in steps:
        if planned.setdefault(step.name, step) is not step:
            raise refused(step.name, "another step has the same name")
    return planned


def _said_group(options: GroupOptions) -> list[Any]:
    callback = options.callback
    receiver = callback if isinstance(callback, str) else dict(callback or {})
    return [instant(options.deadline), list(options.tags), receiver]
