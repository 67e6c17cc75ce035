"""The contract for webhook endpoints."""

from collections.abc import Sequence
from typing import Protocol

from backburner.domain.jobs.job import Instant, Owner
from backburner.domain.webhooks.webhook import Endpoint


class EndpointStore(Protocol):
    """Endpoints: one for each URL of an owner."""

    async def add_endpoint(self, endpoint: Endpoint) -> Endpoint:
        """
        Store an endpoint, durably, unless its owner has one with that URL.

        Return the stored one.
        """
        ...

    async def find_endpoint(self, endpoint_id: str) -> Endpoint | None:
        """Return an endpoint, also a disabled one."""
        ...

    async def endpoints(
        self, owner: Owner, *, before: int | None, limit: int
    ) -> Sequence[Endpoint]:
        """Return an owner's endpoints, newest first, with `seq` below `before`."""
        ...

    async def rotate_endpoint(self, rotated: Endpoint) -> bool:
        """
        Store an endpoint with its next secret, durably.

        `False`, and nothing is written, if its current secret is not the expected one.
        """
        ...

    async def disable_endpoint(
        self, endpoint_id: str, *, reason: str, now: Instant
    ) -> bool:
        """Disable an endpoint, durably; `False` if it was disabled."""
        ...

    async def enable_endpoint(self, endpoint_id: str) -> bool:
        """Enable an endpoint, durably; `False` if it was enabled."""
        ...

    async def delete_endpoint(self, endpoint_id: str) -> bool:
        """Delete an endpoint, durably; `False` if there is none."""
        ...
