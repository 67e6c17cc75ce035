"""Validates a submitted job and prepares it for the store."""

import difflib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import orjson
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from backburner.domain.errors import FieldError, InvalidInput
from backburner.domain.groups.flow import FROM_NEEDS
from backburner.domain.jobs.completion import (
    callback_of,
    with_completion,
    with_parent,
)
from backburner.domain.jobs.job import (
    LATEST,
    PRIORITIES,
    Instant,
    NewJob,
    Owner,
    instant_of,
)
from backburner.domain.webhooks.address import Reach, check_callback
from backburner.engine.flow import Named
from backburner.engine.observability.trace_context import active_traceparent
from backburner.engine.options import SubmitGroupOptions, SubmitOptions
from backburner.engine.registry import Capability, Registry
from backburner.engine.submit import completion, guarding
from backburner.engine.submit.estimates import at_most, clamped
from backburner.ports.clock import Clock, Dice
from backburner.ports.prices import NoPrices, Prices

LOCAL = Owner(tenant="default", user="1")
"""The owner of jobs that are submitted inside the process or in development."""

MAX_TAGS = 20
MAX_TAG_LENGTH = 200
MAX_METADATA = 16
MAX_METADATA_KEY = 64
MAX_METADATA_VALUE = 512
MAX_KEY_LENGTH = 255
MAX_FIELD_ERRORS = 20
TOLD = 3
"""The maximum number of fields in an error message."""
MAX_TOKENS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a job; omitted ones come from the capability."""

    queue: str | None = None
    priority: int = 0
    run_at: datetime | None = None
    delay: timedelta | None = None
    start_by: datetime | None = None
    deadline: datetime | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, str] | None = None
    """
    Texts by name that are stored and shown with the job, such as the caller's ids.
    """
    idempotency_key: str | None = None
    max_attempts: int | None = None
    tokens: int | None = None
    """The expected tokens, if the capability does not estimate them."""
    share: str | None = None
    """The share of the queue that it uses, by default its user's."""
    callback: Mapping[str, Any] | str | None = None
    """Where to report the end: a URL, `{"url": …}` or `{"endpoint": …}`."""
    completion: Mapping[str, Any] | None = None
    """The job to submit when it ends: `{"capability": …, "input": …}`."""
    parent: Mapping[str, str] | None = None
    """The `id` and `queue` of the job that waits for it; set by `ctx.run`."""
    owner: Owner = LOCAL
    request_id: str | None = None
    traceparent: str | None = None
    key: str | None = None
    """The API key of the request; budgets may apply to it."""

    def __post_init__(self) -> None:
        _check_kinds(self)


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Options of a flow or batch; a batch has no deadline."""

    deadline: datetime | None = None
    tags: Sequence[str] = ()
    idempotency_key: str | None = None
    callback: Mapping[str, Any] | str | None = None
    owner: Owner = LOCAL
    request_id: str | None = None
    traceparent: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        _check_kinds(self)


_KINDS: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    "queue": (str, "a name"),
    "priority": (int, "a whole number from 0 to 9"),
    "run_at": (datetime, "a datetime"),
    "delay": (timedelta, "a timedelta, for example timedelta(seconds=5)"),
    "start_by": (datetime, "a datetime"),
    "deadline": (datetime, "a datetime"),
    "tags": ((list, tuple, set, frozenset), "a list of texts"),
    "metadata": (Mapping, "texts by name"),
    "idempotency_key": (str, "a text"),
    "max_attempts": (int, "a whole number from 1 to 100"),
    "tokens": (int, f"a whole number up to {MAX_TOKENS}"),
    "share": (str, "a text"),
    "completion": (Mapping, '{"capability": …, "input": …}'),
    "owner": (Owner, "an Owner"),
}


def _check_kinds(options: "Options | GroupOptions") -> None:
    """Refuse values of a wrong type."""
    for name, (kind, must_be) in _KINDS.items():
        value = getattr(options, name, None)
        if value is not None and not isinstance(value, kind):
            raise refused_field(name, f"must be {must_be}, not {value!r:.100}")


def job_options(given: SubmitOptions) -> Options:
    """Return options from keyword arguments, with the active trace."""
    _check_names(given, Options)
    chosen: SubmitOptions = {"traceparent": active_traceparent(), **given}
    return Options(**chosen)


def group_options(given: SubmitGroupOptions) -> GroupOptions:
    """Return a flow's or batch's options from keyword arguments, with the trace."""
    _check_names(given, GroupOptions)
    chosen: SubmitGroupOptions = {"traceparent": active_traceparent(), **given}
    return GroupOptions(**chosen)


def _check_names(names: Iterable[str], kind: type[Options | GroupOptions]) -> None:
    known = kind.__dataclass_fields__
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"unknown option {name!r}{hint}")


class Callbacks:
    """Validates callbacks."""

    def __init__(self, reach: Reach, *, are_signed: bool) -> None:
        self._are_signed = are_signed
        # A caller with thousands of jobs usually names the same receiver.
        self._usual = lru_cache(maxsize=256)(
            lambda url: str(check_callback(url, reach))
        )

    def checked(self, callback: dict[str, Any]) -> dict[str, Any]:
        """Return the stored form of a callback; refuse one that cannot be delivered."""
        self.require("callback")
        if "url" in callback:
            return {"url": self.url(callback["url"], "callback.url")}
        return callback

    def require(self, path: str) -> None:
        """Refuse if no webhook secret is configured."""
        if not self._are_signed:
            raise refused_field(
                path, "webhooks are disabled: BACKBURNER_WEBHOOK_SECRET is not set"
            )

    def url(self, url: str, path: str) -> str:
        """Return a URL in normal form; the error for an invalid one names `field`."""
        try:
            return self._usual(url)
        except ValueError as error:
            raise refused_field(path, str(error)) from None


class Submission:
    """Validates requests and turns them into rows."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        dice: Dice,
        callbacks: Callbacks | None = None,
        prices: Prices | None = None,
    ) -> None:
        self._registry = registry
        self._prices = prices or NoPrices()
        self._clock = clock
        self._dice = dice
        self._callbacks = callbacks
        """The addresses that may receive callbacks; `None`: all of them."""

    def prepare(
        self, capability: Capability[Any, Any] | str, value: Any, options: Options
    ) -> NewJob:
        """Validate a request and return its job."""
        found = self.find(capability)
        job = self.job(found, input_text(found, value), options)
        if options.idempotency_key is not None:
            job.idempotency_key = options.idempotency_key
            job.body_hash = body_hash(_said(job, value, options))
        return job

    def draw(self, kind: str, now: Instant) -> str:
        """Return a new id."""
        return f"{kind}_{self._dice.uuid(now)}"

    def now(self) -> Instant:
        """Return the submission time."""
        return self._clock.now()

    def find(self, capability: Named | str) -> Capability[Any, Any]:
        """
        Return a capability; the error for an unknown name suggests similar ones.

        Internal capabilities are found only by the object itself: no caller can name
        them.
        """
        name = capability if isinstance(capability, str) else capability.name
        known = self._registry.get(name)
        return known if known is capability else self._registry.find(name)

    def knows(self, capability: str) -> bool:
        """Say whether callers can submit a capability here."""
        return self._registry.offers(capability)

    def callback(self, asked: Mapping[str, Any] | str | None) -> str | None:
        """Validate a callback and return its stored form."""
        if asked is None:
            return None
        receiver = {"url": asked} if isinstance(asked, str) else dict(asked)
        if len(receiver) != 1 or not isinstance(
            receiver.get("url", receiver.get("endpoint")), str
        ):
            raise refused_field("callback", 'must be {"url": …} or {"endpoint": …}')
        if self._callbacks is not None:
            receiver = self._callbacks.checked(receiver)
        return orjson.dumps(receiver).decode()

    def _follows(self, options: Options) -> str | None:
        """Validate a job's completion and callback and return their stored form."""
        follows = self.callback(options.callback)
        if options.completion is not None:
            key = options.key
            asked = completion.written(options.completion, self.find, key=key)
            follows = with_completion(follows, asked)
        if options.parent is not None:
            follows = with_parent(follows, options.parent)
        return follows

    def webhook_url(self, url: str) -> str:
        """Validate a webhook URL and return its stored form."""
        self.require_webhooks()
        return url if self._callbacks is None else self._callbacks.url(url, "url")

    def require_webhooks(self) -> None:
        """Refuse if no webhook secret is configured."""
        if self._callbacks is not None:
            self._callbacks.require("url")

    def job(self, found: Capability[Any, Any], text: str, options: Options) -> NewJob:
        """Return the job for a validated input."""
        _check(options)
        now = self._clock.now()
        tokens = clamped(self._prices, found.model, _tokens(found, text, options))
        marks = self.guard(found, text)
        queue = self._queue(found, options.queue)
        return NewJob(
            id=self.draw("job", now),
            owner=options.owner,
            capability=found.name,
            queue=queue,
            input=text,
            created_at=now,
            max_attempts=options.max_attempts or found.retry.max_attempts,
            priority=options.priority,
            run_at=_run_at(options, now),
            start_by=instant(options.start_by),
            deadline=instant(options.deadline),
            tags=(*options.tags, *marks) if marks else options.tags,
            metadata=_plain(options.metadata),
            request_id=options.request_id,
            callback=self._follows(options),
            traceparent=options.traceparent,
            tokens=tokens,
            money=at_most(self._prices, found.model, tokens).cost,
            model=found.model,
            share=options.share,
            key=options.key,
            kept=self._registry.keeps(queue),
        )

    def guard(self, found: Capability[Any, Any], text: str) -> Sequence[str]:
        """Apply the capability's guard to an input; refuse it or return tags."""
        return () if text == FROM_NEEDS else guarding.tags(found, text)

    def _queue(self, found: Capability[Any, Any], asked: str | None) -> str:
        """Return the queue; refuse one that no worker serves."""
        if asked is None or asked == found.queue:
            return found.queue
        known = self._registry.queues()
        if asked in known:
            return asked
        near = difflib.get_close_matches(asked, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise refused_field("queue", f"no capability uses this queue{hint}")


def instant(moment: datetime | None) -> Instant | None:
    """Convert an aware datetime into an instant."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise InvalidInput(f"{moment.isoformat()} has no time zone: add one")
    return instant_of(moment)


def _run_at(options: Options, now: Instant) -> Instant | None:
    if options.delay is not None:
        return min(now + options.delay // timedelta(milliseconds=1), LATEST)
    return instant(options.run_at)


def _tokens(found: Capability[Any, Any], text: str, options: Options) -> int | None:
    if options.tokens is not None or found.tokens is None:
        return options.tokens
    if not callable(found.tokens):
        return found.tokens
    if text == FROM_NEEDS:
        return None
    return max(0, found.tokens(found.input.validate_json(text)))


def _check(options: Options) -> None:
    if options.tokens is not None and not 0 <= options.tokens <= MAX_TOKENS:
        raise refused_field("tokens", f"must be a whole number up to {MAX_TOKENS}")
    if options.share is not None and not _is_tag(options.share):
        raise refused_field("share", f"1 to {MAX_TAG_LENGTH} printable characters")
    if options.priority not in PRIORITIES:
        raise refused_field("priority", "must be a whole number from 0 to 9")
    if options.run_at is not None and options.delay is not None:
        raise refused_field("run_at", "give either run_at or delay")
    if options.metadata:
        check_metadata(options.metadata)
    check_group(options)
    if options.max_attempts is not None and not 1 <= options.max_attempts <= 100:  # noqa: PLR2004
        raise refused_field("max_attempts", "must be a whole number from 1 to 100")


def check_group(options: Options | GroupOptions) -> None:
    """Refuse tags and keys that cannot be stored."""
    if len(options.tags) > MAX_TAGS or not all(map(_is_tag, options.tags)):
        raise refused_field(
            "tags",
            f"at most {MAX_TAGS}, each 1 to {MAX_TAG_LENGTH} printable characters",
        )
    key = options.idempotency_key
    if key is not None and not _is_name(key, MAX_KEY_LENGTH):
        raise refused_field(
            "Idempotency-Key", f"1 to {MAX_KEY_LENGTH} printable ASCII characters"
        )


def check_metadata(metadata: Mapping[Any, Any]) -> None:
    """Refuse metadata that is not kept with a job."""
    if len(metadata) > MAX_METADATA:
        raise refused_field("metadata", f"at most {MAX_METADATA} keys")
    for key, value in metadata.items():
        if not isinstance(key, str) or not _is_tag(key, MAX_METADATA_KEY):
            raise refused_field(
                "metadata", f"keys have 1 to {MAX_METADATA_KEY} printable characters"
            )
        if not _is_value(value):
            raise refused_field(
                f"metadata.{key}",
                f"must be a text of at most {MAX_METADATA_VALUE} characters",
            )


def check_sought(metadata: Mapping[Any, Any]) -> None:
    """Refuse metadata that no job has, or that stores cannot find."""
    check_metadata(metadata)
    for key, value in metadata.items():
        # In JSON these look like what is between a text and the next.
        if {key, value} == {":", ","}:
            raise refused_field("metadata", f"{key}={value} cannot be searched for")


def _plain(metadata: Mapping[str, str] | None) -> dict[str, str] | None:
    """Copy metadata into what JSON is written of: plain texts in a dict."""
    if not metadata:
        return None
    plain = str.__str__  # the text of a subclass, such as an enumeration's member
    return {plain(key): plain(value) for key, value in metadata.items()}


def _is_value(value: object) -> bool:
    if not isinstance(value, str) or len(value) > MAX_METADATA_VALUE:
        return False
    # Neither NUL nor a surrogate: not every store and reader accepts them.
    return not any(mark == "\0" or "\ud800" <= mark <= "\udfff" for mark in value)


def refused_field(path: str, message: str) -> InvalidInput:
    """Return the error for a field."""
    return InvalidInput(f"{path}: {message}", [FieldError(path, message)])


def _is_tag(tag: str, longest: int = MAX_TAG_LENGTH) -> bool:
    return 0 < len(tag) <= longest and tag.isprintable()


def _is_name(text: str, longest: int) -> bool:
    return 0 < len(text) <= longest and text.isascii() and text.isprintable()


def input_text(found: Capability[Any, Any], value: Any) -> str:
    """Validate an input and return its stored form."""
    try:
        if isinstance(value, bytes):  # JSON; a str is a value like any other
            checked = found.input.validate_json(value)
        else:
            checked = found.input.validate_python(value)
        return found.input.dump_json(checked, by_alias=True).decode()
    except ValidationError as error:
        fields = _fields(error)
        faults = "; ".join(f"{field.path}: {field.message}" for field in fields[:TOLD])
        raise InvalidInput(
            f"the input does not match capability {found.name!r}: {faults}", fields
        ) from None
    except PydanticSerializationError:
        raise InvalidInput(
            f"the input of capability {found.name!r} cannot be written as JSON"
        ) from None


def _fields(error: ValidationError) -> list[FieldError]:
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    return [FieldError.of(fault, "input") for fault in errors[:MAX_FIELD_ERRORS]]


def body_hash(body: Any) -> str:
    """Return a digest of a request body."""
    canonical = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()


def _said(job: NewJob, value: Any, options: Options) -> list[Any]:
    # Hash the request, not the validated input: a random default, or a field added by a
    # release, must not turn a repeat into a conflict.
    sent = value if isinstance(value, bytes) else to_json(value, by_alias=True)
    body = [
        job.capability,
        orjson.loads(sent),
        job.queue,
        job.priority,
        instant(options.run_at),
        options.delay.total_seconds() if options.delay else None,
        job.start_by,
        job.deadline,
        list(options.tags),
        options.max_attempts,
    ]
    callback = callback_of(job.callback)
    if callback is not None:
        body.append(callback)
    # Add these only if they are given, so that repeats of older requests still match.
    given = {
        "tokens": options.tokens,
        "share": options.share,
        "metadata": _plain(options.metadata),
        "completion": completion.said(options.completion),
    }
    more = {name: value for name, value in given.items() if value is not None}
    return [*body, more] if more else body
