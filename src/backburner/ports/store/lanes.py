"""The contract for lanes, which limit calls to providers."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from backburner.domain.jobs.job import Instant
from backburner.domain.lanes.lane import Lane, LaneState
from backburner.domain.lanes.permit import Permit, PermitRequest, Wait
from backburner.domain.lanes.rate_limit_headers import RateLimitInfo


class LaneView(NamedTuple):
    """A lane as shown to operators."""

    state: LaneState
    in_use: int
    """The permits in use, of live workers."""
    now: Instant
    """The store's time, to which the instants refer."""


class PermitReturn(NamedTuple):
    """The state of a lane after a permit was returned."""

    is_parked: bool = False
    """Whether this refusal parked the lane, or parked it for longer."""
    wait: Wait | None = None
    """When to ask again, if the call was refused."""


class LaneStore(Protocol):
    """Lanes to providers and their permits, by the store's clock."""

    async def declare_lanes(self, lanes: Sequence[Lane]) -> None:
        """Store the limits of lanes, durably; learned limits stay."""
        ...

    async def take_permit(
        self, lane: str, worker: str, ask: PermitRequest
    ) -> Permit | Wait:
        """
        Give a worker a permit for one call, or return when to ask again.

        An undeclared lane is created. Permits of workers that are no longer enlisted
        are released; a worker that is not enlisted gets `WorkerLost`. Not durable: a
        crash of the machine loses only permits of calls that it interrupts.
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
        Return a permit with the provider's answer.

        If the call is not over (`is_over`), the permit stays taken and only the answer
        is recorded. The answer counts also if the permit was given to another worker
        meanwhile. Parking a lane writes the event `lane.throttled`.
        """
        ...

    async def lanes(self) -> Sequence[LaneView]:
        """Return every lane that was declared or used, by name."""
        ...
