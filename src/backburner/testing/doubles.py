"""Test doubles for the time, random numbers, the notifier and the context."""

import random
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final

import orjson

from backburner.ai.mock import Mock
from backburner.blobs.memory import MemoryBlobs
from backburner.domain.events.event import PROGRESS
from backburner.domain.jobs.job import Instant, uuid7
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.models.asking import Providers
from backburner.engine.run.context import Context
from backburner.engine.run.outbound import Http, HttpLimits, HttpResponse
from backburner.engine.run.services import Services
from backburner.engine.run.streaming import OutputStream
from backburner.ports.app_settings import AppSettings
from backburner.ports.egress import Incoming, Outgoing, Silence, Unusable
from backburner.ports.notifier import Notification
from backburner.testing.samples import NOON, a_claim


class FrozenClock:
    """A `Clock` that stands still until `advance` is called."""

    def __init__(self, now: Instant = NOON) -> None:
        self._now = now
        self._monotonic: Instant = 1_000_000

    def now(self) -> Instant:
        return self._now

    def monotonic(self) -> Instant:
        return self._monotonic

    def advance(self, span: timedelta) -> None:
        """Advance the time."""
        passed = span // timedelta(milliseconds=1)
        self._now += passed
        self._monotonic += passed


class SeededDice:
    """`Dice` whose random numbers depend only on the seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._last = 0

    def roll(self) -> float:
        return self._random.random()

    def token(self) -> str:
        return f"{self._random.getrandbits(64):016x}"

    def uuid(self, now: Instant) -> str:
        self._last = max(self._last + 1, now << 12)
        return uuid7(self._last, self._random.getrandbits(62))


class SilentNotifier:
    """A `Notifier` without listeners; it records its notifications."""

    def __init__(self) -> None:
        self.notified = Notification(0)

    def notify(self, what: Notification) -> None:
        self.notified |= what

    def listen(self, callback: Callable[[Notification], None]) -> Callable[[], None]:
        del callback
        return lambda: None


LIMITS: Final = HttpLimits(bytes=32 * 1024 * 1024, seconds=30.0)


class FakeContext(Context):
    """A context to call a handler directly with; it records what is reported."""

    def __init__(
        self,
        *,
        settings: Iterable[object] = (),
        answers: Iterable[HttpResponse] = (),
        **claim: Any,
    ) -> None:
        """
        Take fields of a `Claim` to override the defaults.

        `settings` are the settings of applications, for `settings_of`. `answers` are
        the responses that `ctx.http` gets from their URLs; other URLs cannot be
        reached.
        """
        self.requests: list[Outgoing] = []
        """The requests that were sent with `ctx.http`."""
        self._answers = {answer.url: answer for answer in answers}
        self.told: list[dict[str, Any]] = []
        """The reported progress; the text is in `text`."""
        self.submitted: list[tuple[Any, Any, dict[str, Any]]] = []
        services = Services(
            self._keep,
            output_sink=self,
            payloads=Payloads(MemoryBlobs(FrozenClock())),
            providers=Providers([Mock(clock := FrozenClock())], clock),
            app_settings=AppSettings(settings),
            http=lambda: Http(self, clock, LIMITS),
        )
        super().__init__(a_claim(**claim), services)

    async def fetch(self, request: Outgoing) -> Incoming | Silence | Unusable:
        """Answer the requests of `ctx.http`."""
        self.requests.append(request)
        answer = self._answers.get(request.url)
        if answer is None:
            return Silence.REFUSED
        if len(answer.body) > request.limit:
            return Unusable.TOO_LARGE
        return Incoming(answer.status, answer.headers, answer.body, answer.url)

    def hear(self, output_stream: OutputStream) -> None:
        """Record the handler's output at once."""
        self.told += [
            orjson.loads(note.data)
            for note in output_stream.drain(NOON)
            if note.type == PROGRESS
        ]

    def hurry(self) -> None:
        """Do nothing: all output is recorded already."""

    async def _keep(self, capability: Any, value: Any, **options: Any) -> None:
        self.submitted.append((capability, value, options))
