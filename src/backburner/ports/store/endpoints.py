"""The part of a store that keeps where webhooks go."""

from collections.abc import Sequence
from typing import Protocol

from backburner.domain.jobs.job import Instant, Owner
from backburner.domain.webhooks.webhook import Endpoint


class EndpointStore(Protocol):
    """Endpoints: one for each URL of an owner."""

    async def add_endpoint(self, endpoint: Endpoint) -> Endpoint:
        """
        Store an endpoint, durable, unless its owner has one with that URL.

        Return the one that is there then.
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
        Give an endpoint its next secret, durable.

        `False` if it does not have the one before that any more: nothing is written.
        """
        ...

    async def disable_endpoint(
        self, endpoint_id: str, *, reason: str, now: Instant
    ) -> bool:
        """Have nothing sent to an endpoint, durable; `False` if that was so before."""
        ...

    async def enable_endpoint(self, endpoint_id: str) -> bool:
        """Have webhooks sent again, durable; `False` if they are."""
        ...

    async def delete_endpoint(self, endpoint_id: str) -> bool:
        """Forget an endpoint, durable; `False` if there is none."""
        ...
