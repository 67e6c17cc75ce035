"""What a running capability may reach."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from backburner.domain.errors import readable
from backburner.domain.job import Claim, Instant, Owner
from backburner.engine.payloads import JobBlobs, Payloads
from backburner.engine.transaction import Transaction

LARGEST_WHOLE = 2**53


@dataclass(frozen=True, slots=True)
class JobInfo:
    """The job that a handler runs for."""

    id: str
    capability: str
    queue: str
    owner: Owner
    attempt: int
    max_attempts: int
    generation: int
    created_at: Instant
    request_id: str | None


class Submit(Protocol):
    """Submits a job on behalf of the running one."""

    def __call__(self, capability: Any, value: Any, **options: Any) -> Awaitable[Any]:
        """Return the new job's ticket."""
        ...


def inherited(claim: Claim) -> dict[str, Any]:
    """Return what a job made by another one takes over: its owner and request."""
    return {
        "owner": Owner(claim.tenant, claim.user),
        "request_id": claim.request_id,
    }


class Context:
    """One attempt's way to the house. Nothing here outlives the attempt."""

    __slots__ = ("_blobs", "_bodies", "_claim", "_payloads", "_report", "_submit")

    def __init__(
        self,
        claim: Claim,
        report: Callable[[dict[str, Any]], None],
        submit: Submit,
        payloads: Payloads | None = None,
    ) -> None:
        self._claim = claim
        self._report = report
        self._submit = submit
        self._payloads = payloads
        self._blobs: JobBlobs | None = None
        self._bodies: list[Callable[[Transaction], None]] | None = None

    @property
    def job(self) -> JobInfo:
        """The job that this is an attempt of."""
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
        )

    async def progress(
        self, done: float, total: float = 1.0, message: str | None = None
    ) -> None:
        """
        Say how far the work is; readers see it live.

        Calls in quick succession are coalesced: the latest is what is told.
        """
        told: dict[str, Any] = {"done": _number(done), "total": _number(total)}
        if message is not None:
            told["message"] = readable(message)
        self._report(told)

    def at_settlement(self, body: Callable[[Transaction], None]) -> None:
        """
        Write to the database together with this job's success, or not at all.

        `body` is a plain function; it runs in the transaction that settles the job,
        after the handler returned. If it raises, the attempt has failed.
        """
        if self._bodies is None:
            self._bodies = []
        self._bodies.append(body)

    async def submit(self, capability: Any, value: Any, **options: Any) -> Any:
        """Submit another job, durable when this returns; takes what `submit` takes."""
        options = {**inherited(self._claim), **options}
        return await self._submit(capability, value, **options)

    @property
    def blobs(self) -> JobBlobs:
        """
        Contents of this job: `await ctx.blobs.put(bytes)` gives an id to `get` by.

        They are kept for as long as the job is. Large inputs and outputs go that way
        by themselves.
        """
        if self._blobs is None:
            self._blobs = JobBlobs(self._claim, self._payloads or Payloads())
        return self._blobs

    @property
    def settlement_bodies(self) -> tuple[Callable[[Transaction], None], ...]:
        """What `at_settlement` was given, in order."""
        return tuple(self._bodies or ())


def _number(value: float) -> float:
    """Take a number; anything else is the handler's own mistake, told to it."""
    # JSON holds whole numbers up to 64 bits: a larger one would cost others theirs.
    is_whole = isinstance(value, int) and abs(value) <= LARGEST_WHOLE
    return value if is_whole else float(value)
