"""API keys, and the append-only audit log."""

import asyncio

import pytest
import sqlalchemy as sa

from backburner.domain.auth.key import ApiKey
from backburner.ports.store import Store
from backburner.ports.store.keys import AuditEntry
from backburner.testing.samples import NOON
from backburner.testing.store.acts import SECOND


def a_key(key_id: str = "k1", *, tenant: str = "t", user: str | None = None) -> ApiKey:
    """Return an unused key."""
    return ApiKey(
        id=key_id,
        name="a key",
        tenant=tenant,
        user=user,
        scopes=frozenset({"jobs:read", "jobs:write"}),
        digest="d" * 64,
        created_at=NOON,
        expires_at=NOON + SECOND,
    )


def an_entry(
    action: str = "key.created", *, tenant: str = "t", target: str = "k1"
) -> AuditEntry:
    """Return an entry for the audit log."""
    return AuditEntry(NOON + 1, tenant, "ann", action, target, "r1")


class KeyConformance:
    """`KeyStore`: API keys, and the append-only audit log."""

    async def test_a_key_is_found_as_it_was_stored(self, store: Store) -> None:
        await store.add_key(a_key(user="u"), an_entry())
        await store.add_key(a_key("k2"), an_entry(target="k2"))

        assert a_key(user="u") == await store.find_key("k1")
        assert a_key("k2") == await store.find_key("k2")
        assert await store.find_key("k3") is None

    async def test_keys_are_listed_by_tenant(self, store: Store) -> None:
        await store.add_key(a_key("k2"), an_entry())
        await store.add_key(a_key("k1"), an_entry())
        await store.add_key(a_key("k3", tenant="other"), an_entry())

        assert ["k1", "k2"] == [key.id for key in await store.list_keys("t")]
        assert ["k1", "k2", "k3"] == [key.id for key in await store.list_keys()]

    async def test_a_key_and_its_entry_are_stored_together(self, store: Store) -> None:
        await store.add_key(a_key(), an_entry())
        with pytest.raises(sa.exc.IntegrityError):
            await store.add_key(a_key(), an_entry("again"))

        told = await store.audited("t", before=None, limit=9)
        assert ["key.created"] == [entry.action for entry in told]

    async def test_an_entry_has_no_invisible_characters(self, store: Store) -> None:
        target = "x\n2026-01-01 admin key.created\x1b[2J\u202e"
        await store.record([an_entry("job.changed", target=target)])

        [told] = await store.audited("t", before=None, limit=9)
        assert r"x\n2026-01-01 admin key.created\u001b[2J\u202e" == told.target
        assert told.target.isprintable()

    async def test_a_key_is_revoked_once(self, store: Store) -> None:
        await store.add_key(a_key(), an_entry())
        first = await store.revoke_key("k1", an_entry("key.revoked"))
        again = await store.revoke_key("k1", an_entry("key.revoked"))

        key = await store.find_key("k1")
        told = await store.audited("t", before=None, limit=9)
        assert (True, False) == (first, again)
        assert key is not None
        assert NOON + 1 == key.revoked_at
        assert ["key.revoked", "key.created"] == [entry.action for entry in told]

    async def test_a_key_of_another_tenant_is_not_revoked(self, store: Store) -> None:
        await store.add_key(a_key(), an_entry())
        foreign = an_entry("key.revoked", tenant="other")

        assert await store.revoke_key("k1", foreign) is False
        assert a_key() == await store.find_key("k1")
        assert [] == list(await store.audited("other", before=None, limit=9))

    async def test_the_use_of_a_key_is_noted_now_and_then(self, store: Store) -> None:
        await store.add_key(a_key(), an_entry())
        await store.touch_key("k1", now=NOON + 5, unless_since=NOON)
        await store.touch_key("k1", now=NOON + 8, unless_since=NOON + 4)
        early = await store.find_key("k1")
        await store.touch_key("k1", now=NOON + 9, unless_since=NOON + 5)
        late = await store.find_key("k1")

        assert early is not None
        assert late is not None
        assert (NOON + 5, NOON + 9) == (early.last_used_at, late.last_used_at)

    async def test_the_log_is_read_newest_first_in_pages(self, store: Store) -> None:
        await store.record([an_entry(f"act {n}") for n in range(3)])
        await store.record([an_entry("foreign", tenant="other")])

        first = await store.audited("t", before=None, limit=2)
        second = await store.audited("t", before=first[-1].seq, limit=2)

        told = [entry.action for entry in (*first, *second)]
        assert ["act 2", "act 1", "act 0"] == told
        assert (NOON + 1, "ann", "k1", "r1") == (
            first[0].at,
            first[0].actor,
            first[0].target,
            first[0].request_id,
        )

    @pytest.mark.parametrize(
        "statement", ["DELETE FROM audit", "UPDATE audit SET actor = 'nobody'"]
    )
    async def test_nothing_is_taken_from_the_log(
        self, store: Store, statement: str
    ) -> None:
        await store.record([an_entry()])
        with pytest.raises(Exception, match="audit only grows"):
            await store.transact(lambda tx: tx.connection.execute(sa.text(statement)))

        told = await store.audited("t", before=None, limit=9)
        assert ["ann"] == [entry.actor for entry in told]

    async def test_entries_that_come_at_once_are_all_kept(self, store: Store) -> None:
        entries = [an_entry(f"act {n}") for n in range(20)]
        await asyncio.gather(*(store.record([entry]) for entry in entries))

        told = await store.audited("t", before=None, limit=99)
        assert {entry.action for entry in entries} == {entry.action for entry in told}
