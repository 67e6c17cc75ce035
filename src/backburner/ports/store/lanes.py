"""The part of a store that paces calls to providers."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from backburner.domain.jobs.job import Instant
from backburner.domain.lanes.lane import Lane, LaneState
from backburner.domain.lanes.permit import Permit, PermitRequest, Wait
from backburner.domain.lanes.rate_limit_headers import RateLimitInfo


class LaneView(NamedTuple):
    """A lane as operators see it."""

    state: LaneState
    in_use: int
    """Permits that are out, of workers that live."""
    now: Instant
    """The store's time, by which its instants are to be read."""


class PermitReturn(NamedTuple):
    """What became of a lane when a permit came back."""

    is_parked: bool = False
    """Whether this refusal parked it, or parked it for longer."""
    wait: Wait | None = None
    """When to ask again, if the call was refused."""


class LaneStore(Protocol):
    """Lanes to providers, and who may call by them; judged by the store's clock."""

    async def declare_lanes(self, lanes: Sequence[Lane]) -> None:
        """Store limits in place of those that were, durable; what was learnt stays."""
        ...

    async def take_permit(
        self, lane: str, worker: str, ask: PermitRequest
    ) -> Permit | Wait:
        """
        Give a worker leave to make one call, or say when to ask again.

        A lane that nobody declared is made. Permits of workers that are not enlisted
        any more are free; one that is not enlisted gets `WorkerLost`. Not durable:
        what is lost with the machine are calls that were under way.
        """
        ...

    async def give_permit(
        self,
        lane: str,
        permit: Permit,
        hint: RateLimitInfo | None,
        ask: PermitRequest,
        *,
        is_over: bool = True,
    ) -> PermitReturn:
        """
        Take a permit back, with what the provider said.

        Unless the call `is_over` the permit stays out: it is only told of.
        What is said counts also if the permit was given to somebody else meanwhile.
        A lane that is parked is told of: `lane.throttled`.
        """
        ...

    async def lanes(self) -> Sequence[LaneView]:
        """Return every lane that was declared or used, by name."""
        ...
