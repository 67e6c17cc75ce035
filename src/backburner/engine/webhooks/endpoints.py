"""Webhook endpoints and their secrets."""

from collections.abc import Mapping, Sequence
from typing import Final

from backburner.domain.errors import EndpointNotFound, IllegalTransition
from backburner.domain.jobs.job import Owner
from backburner.domain.webhooks import webhook
from backburner.domain.webhooks.webhook import Endpoint
from backburner.engine.submit.submission import LOCAL, Submission
from backburner.ports.clock import Clock
from backburner.ports.store.endpoints import EndpointStore

ON_REQUEST: Final = "disabled on request"
BELIEVED_MS: Final = 1_000
"""How long deliveries cache an endpoint."""
MOST_BELIEVED: Final = 1_000


class Endpoints:
    """Creates, finds, changes and deletes webhook endpoints."""

    def __init__(
        self,
        *,
        store: EndpointStore,
        clock: Clock,
        submission: Submission,
        master: bytes,
    ) -> None:
        self._store = store
        self._clock = clock
        self._submission = submission
        self._master = master
        self._believed: dict[tuple[Owner, str], tuple[int, Endpoint]] = {}

    async def create(self, url: str, owner: Owner = LOCAL) -> Endpoint:
        """Return the owner's endpoint for a URL; create it if there is none."""
        return await self._at(self._submission.webhook_url(url), owner)

    async def find(self, endpoint_id: str, owner: Owner = LOCAL) -> Endpoint:
        """Return an owner's endpoint."""
        found = await self._store.find_endpoint(endpoint_id)
        if found is None or found.owner != owner:
            raise EndpointNotFound(
                "the endpoint does not exist or belongs to another owner"
            )
        return found

    async def listing(
        self, owner: Owner = LOCAL, *, before: int | None = None, limit: int = 50
    ) -> Sequence[Endpoint]:
        """Return a page of an owner's endpoints, newest first."""
        return await self._store.endpoints(owner, before=before, limit=limit)

    def secrets(self, endpoint: Endpoint) -> list[str]:
        """Return the valid signing secrets, newest first."""
        return [
            webhook.secret(self._master, endpoint.id, version)
            for version in webhook.live_versions(endpoint, self._clock.now())
        ]

    async def rotate(self, endpoint_id: str, owner: Owner = LOCAL) -> Endpoint:
        """Give an endpoint a new secret; the previous one stays valid for a day."""
        self._submission.require_webhooks()
        found = await self.find(endpoint_id, owner)
        rotated = webhook.rotate(found, now=self._clock.now())
        if not await self._store.rotate_endpoint(rotated):
            raise IllegalTransition(
                "the secret was rotated by another request at the same time"
            )
        self._believed.clear()
        return rotated

    async def disable(self, endpoint_id: str, owner: Owner = LOCAL) -> Endpoint:
        """Disable an endpoint; repeating it is no error."""
        found = await self.find(endpoint_id, owner)
        await self.give_up(found, ON_REQUEST)
        return await self.find(endpoint_id, owner)

    async def enable(self, endpoint_id: str, owner: Owner = LOCAL) -> Endpoint:
        """Enable an endpoint; repeating it is no error."""
        await self.find(endpoint_id, owner)
        await self._store.enable_endpoint(endpoint_id)
        self._believed.clear()
        return await self.find(endpoint_id, owner)

    async def delete(self, endpoint_id: str, owner: Owner = LOCAL) -> None:
        """Delete an endpoint; a new one for the same URL has other secrets."""
        await self.find(endpoint_id, owner)
        await self._store.delete_endpoint(endpoint_id)
        self._believed.clear()

    async def give_up(self, endpoint: Endpoint, reason: str) -> None:
        """Disable an endpoint whose receiver is gone."""
        await self._store.disable_endpoint(
            endpoint.id, reason=reason, now=self._clock.now()
        )
        self._believed.clear()

    async def called(
        self, callback: Mapping[str, str], owner: Owner
    ) -> Endpoint | None:
        """Return the endpoint of a callback; create one for a plain URL."""
        if "url" in callback:
            return await self._lately_at(callback["url"], owner)
        found = await self._store.find_endpoint(callback["endpoint"])
        return found if found is not None and found.owner == owner else None

    async def _lately_at(self, url: str, owner: Owner) -> Endpoint:
        now = self._clock.monotonic()
        seen_at, found = self._believed.get((owner, url), (now - BELIEVED_MS, None))
        if found is None or now - seen_at >= BELIEVED_MS:
            found = await self._at(url, owner)
            if len(self._believed) >= MOST_BELIEVED:
                self._believed.clear()
            self._believed[owner, url] = now, found
        return found

    async def _at(self, url: str, owner: Owner) -> Endpoint:
        now = self._clock.now()
        new = Endpoint(self._submission.draw("ep", now), owner, url, now)
        return await self._store.add_endpoint(new)
