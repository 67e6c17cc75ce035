"""From what a caller asks to a job that can be stored."""

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from backburner.domain.errors import FieldError, InvalidInput
from backburner.domain.job import PRIORITIES, Instant, NewJob, Owner
from backburner.engine.registry import Capability, Registry
from backburner.ports.clock import Clock, Dice

LOCAL = Owner(tenant="default", user="1")
"""Who submits from inside the process, and everybody in development."""

MAX_TAGS = 20
MAX_TAG_LENGTH = 200
MAX_KEY_LENGTH = 255
MAX_FIELD_ERRORS = 20


@dataclass(frozen=True, slots=True)
class Options:
    """How a job is to be run; the capability says what is left out."""

    queue: str | None = None
    priority: int = 0
    run_at: datetime | None = None
    delay: timedelta | None = None
    start_by: datetime | None = None
    deadline: datetime | None = None
    tags: Sequence[str] = ()
    idempotency_key: str | None = None
    max_attempts: int | None = None
    owner: Owner = LOCAL
    request_id: str | None = None


class Submission:
    """Checks requests and turns them into rows."""

    def __init__(self, registry: Registry, clock: Clock, dice: Dice) -> None:
        self._registry = registry
        self._clock = clock
        self._dice = dice

    def prepare(
        self, capability: Capability[Any, Any] | str, value: Any, options: Options
    ) -> NewJob:
        """Check a request and write it as a job."""
        name = capability if isinstance(capability, str) else capability.name
        found = self._registry.find(name)
        _check(options)
        now = self._clock.now()
        job = NewJob(
            id=f"job_{self._dice.uuid(now)}",
            owner=options.owner,
            capability=found.name,
            queue=self._queue(found, options.queue),
            input=_input(found, value),
            created_at=now,
            max_attempts=options.max_attempts or found.retry.max_attempts,
            priority=options.priority,
            run_at=_run_at(options, now),
            start_by=instant(options.start_by),
            deadline=instant(options.deadline),
            tags=options.tags,
            request_id=options.request_id,
        )
        if options.idempotency_key is not None:
            job.idempotency_key = options.idempotency_key
            job.body_hash = _body_hash(job, value, options)
        return job

    def _queue(self, found: Capability[Any, Any], asked: str | None) -> str:
        """Choose a queue that is served: on another a job would wait for ever."""
        if asked is None or asked == found.queue:
            return found.queue
        known = self._registry.queues()
        if asked in known:
            return asked
        near = difflib.get_close_matches(asked, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise _refused("queue", f"no capability here uses that queue{hint}")


def instant(moment: datetime | None) -> Instant | None:
    """Turn an aware time into an instant."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise InvalidInput(f"{moment.isoformat()} has no time zone: add one")
    return int(moment.timestamp() * 1000)


def _run_at(options: Options, now: Instant) -> Instant | None:
    if options.delay is not None:
        return now + options.delay // timedelta(milliseconds=1)
    return instant(options.run_at)


def _check(options: Options) -> None:
    if options.priority not in PRIORITIES:
        raise _refused("priority", "must be a whole number from 0 to 9")
    if options.run_at is not None and options.delay is not None:
        raise _refused("run_at", "say either run_at or delay")
    if len(options.tags) > MAX_TAGS or not all(map(_is_tag, options.tags)):
        raise _refused(
            "tags",
            f"at most {MAX_TAGS}, each 1 to {MAX_TAG_LENGTH} printable characters",
        )
    key = options.idempotency_key
    if key is not None and not _is_name(key, MAX_KEY_LENGTH):
        raise _refused(
            "Idempotency-Key", f"1 to {MAX_KEY_LENGTH} printable ASCII characters"
        )
    if options.max_attempts is not None and not 1 <= options.max_attempts <= 100:  # noqa: PLR2004
        raise _refused("max_attempts", "must be a whole number from 1 to 100")


def _refused(path: str, message: str) -> InvalidInput:
    return InvalidInput(f"{path}: {message}", [FieldError(path, message)])


def _is_tag(tag: str) -> bool:
    return 0 < len(tag) <= MAX_TAG_LENGTH and tag.isprintable()


def _is_name(text: str, longest: int) -> bool:
    return 0 < len(text) <= longest and text.isascii() and text.isprintable()


def _input(found: Capability[Any, Any], value: Any) -> str:
    try:
        if isinstance(value, bytes):  # JSON; a str is a value like any other
            checked = found.input.validate_json(value)
        else:
            checked = found.input.validate_python(value)
        return found.input.dump_json(checked, by_alias=True).decode()
    except ValidationError as error:
        raise InvalidInput(
            f"the input does not match capability {found.name!r}", _fields(error)
        ) from None
    except PydanticSerializationError:
        raise InvalidInput(
            f"the input of capability {found.name!r} cannot be written as JSON"
        ) from None


def _fields(error: ValidationError) -> list[FieldError]:
    told = error.errors(include_url=False, include_context=False, include_input=False)
    return [
        FieldError(".".join(("input", *map(str, e["loc"]))), e["msg"])
        for e in told[:MAX_FIELD_ERRORS]
    ]


def _body_hash(job: NewJob, value: Any, options: Options) -> str:
    # Of what was sent, not of what validation made of it: a default drawn anew, or a
    # field that a release adds, must not turn an honest repeat into a conflict.
    sent = value if isinstance(value, bytes) else to_json(value, by_alias=True)
    said = [
        job.capability,
        orjson.loads(sent),
        job.queue,
        job.priority,
        instant(options.run_at),
        options.delay.total_seconds() if options.delay else None,
        job.start_by,
        job.deadline,
        list(job.tags),
        options.max_attempts,
    ]
    canonical = orjson.dumps(said, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()
