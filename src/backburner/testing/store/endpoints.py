"""Webhook endpoints."""

import asyncio
from dataclasses import replace

from backburner.domain.jobs.job import Owner
from backburner.domain.webhooks import webhook
from backburner.domain.webhooks.webhook import Endpoint
from backburner.ports.store import Store
from backburner.testing.samples import ANN, BOB, NOON

URL = "https://hooks.example/a"


def an_endpoint(
    endpoint_id: str = "ep_1", *, owner: Owner = ANN, url: str = URL
) -> Endpoint:
    """Return an endpoint with its first secret."""
    return Endpoint(endpoint_id, owner, url, NOON)


class EndpointConformance:
    """`EndpointStore`: one endpoint per URL and owner."""

    async def test_an_endpoint_is_found_as_it_was_stored(self, store: Store) -> None:
        added = await store.add_endpoint(an_endpoint())

        assert an_endpoint() == added
        assert an_endpoint() == await store.find_endpoint("ep_1")
        assert await store.find_endpoint("ep_2") is None

    async def test_an_owner_has_one_endpoint_for_a_url(self, store: Store) -> None:
        await store.add_endpoint(an_endpoint())
        again = await store.add_endpoint(an_endpoint("ep_2"))
        others = await store.add_endpoint(an_endpoint("ep_3", owner=BOB))

        assert ("ep_1", "ep_3") == (again.id, others.id)
        assert await store.find_endpoint("ep_2") is None

    async def test_of_endpoints_that_come_at_once_one_stands(
        self, store: Store
    ) -> None:
        asked = [an_endpoint(f"ep_{n}") for n in range(10)]
        found = await asyncio.gather(*map(store.add_endpoint, asked))

        assert 1 == len({endpoint.id for endpoint in found})
        assert 1 == len(await store.endpoints(ANN, before=None, limit=99))

    async def test_endpoints_are_listed_newest_first_in_pages(
        self, store: Store
    ) -> None:
        for n in range(3):
            await store.add_endpoint(an_endpoint(f"ep_{n}", url=f"{URL}{n}"))
        await store.add_endpoint(an_endpoint("ep_9", owner=BOB))

        first = await store.endpoints(ANN, before=None, limit=2)
        second = await store.endpoints(ANN, before=first[-1].seq, limit=2)

        listed = [endpoint.id for endpoint in (*first, *second)]
        assert ["ep_2", "ep_1", "ep_0"] == listed

    async def test_a_secret_is_rotated_once_from_each_version(
        self, store: Store
    ) -> None:
        added = await store.add_endpoint(an_endpoint())
        rotated = webhook.rotate(added, now=NOON + 5)

        assert await store.rotate_endpoint(rotated)
        assert not await store.rotate_endpoint(replace(rotated, rotated_at=NOON + 6))
        assert rotated == await store.find_endpoint("ep_1")

    async def test_an_endpoint_is_disabled_and_enabled_once(self, store: Store) -> None:
        added = await store.add_endpoint(an_endpoint())

        first = await store.disable_endpoint("ep_1", reason="gone", now=NOON + 1)
        again = await store.disable_endpoint("ep_1", reason="more", now=NOON + 2)
        off = await store.find_endpoint("ep_1")
        back = [await store.enable_endpoint("ep_1") for _ in range(2)]

        assert (True, False) == (first, again)
        assert off == replace(added, disabled_at=NOON + 1, disabled_reason="gone")
        assert [True, False] == back
        assert added == await store.find_endpoint("ep_1")

    async def test_a_disabled_endpoint_stays_so_when_it_is_added_again(
        self, store: Store
    ) -> None:
        await store.add_endpoint(an_endpoint())
        await store.disable_endpoint("ep_1", reason="gone", now=NOON)

        again = await store.add_endpoint(an_endpoint("ep_2"))

        assert ("ep_1", NOON) == (again.id, again.disabled_at)

    async def test_an_endpoint_that_is_deleted_is_forgotten(self, store: Store) -> None:
        await store.add_endpoint(an_endpoint())
        deleted = [await store.delete_endpoint("ep_1") for _ in range(2)]
        anew = await store.add_endpoint(an_endpoint("ep_2"))

        assert [True, False] == deleted
        assert await store.find_endpoint("ep_1") is None
        assert "ep_2" == anew.id
