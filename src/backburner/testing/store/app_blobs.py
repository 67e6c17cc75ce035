"""Rows of applications' blobs."""

from dataclasses import replace
from typing import Any

import pytest

from backburner.domain.blobs.app_blob import AppBlob
from backburner.domain.jobs.job import Owner
from backburner.ports.store import Store
from backburner.ports.store.transactions import Tx
from backburner.testing.samples import NOON

ANN, BOB, ELSEWHERE = Owner("t", "ann"), Owner("t", "bob"), Owner("other", "ann")


def a_blob(blob_id: str = "blob_1", **fields: Any) -> AppBlob:
    """Return a blob that is not stored."""
    given = {"app": "songs", "owner": ANN, "name": "a.txt", "size": 5, **fields}
    return AppBlob(
        id=blob_id,
        content_type="text/plain",
        sha256="0" * 64,
        created_at=NOON,
        **given,
    )


async def insert(store: Store, *blobs: AppBlob) -> list[int | None]:
    """Store rows in one transaction; return their numbers."""

    def body(tx: Tx) -> list[int | None]:
        return [store.insert_blob(tx.connection, blob) for blob in blobs]

    return await store.transact(body)


async def names(store: Store, app: str, owner: Owner, after: int = 0) -> list[str]:
    """Return the ids of an owner's rows."""
    found = await store.list_blobs(app, owner, after=after, limit=9)
    return [blob.id for blob in found]


class AppBlobConformance:
    """`AppBlobStore`: only the application and the owner see a row."""

    async def test_a_blob_is_found_as_it_was_stored(self, store: Store) -> None:
        blob = a_blob(size=2**40, expires_at=NOON + 1, upload="upload_1")
        [seq] = await insert(store, blob)

        found = await store.find_blob("songs", ANN, "blob_1")
        assert seq is not None
        assert replace(blob, seq=seq) == found
        assert found == await store.find_upload("songs", ANN, "upload_1")

    @pytest.mark.parametrize(
        ("app", "owner"), [("songs", BOB), ("songs", ELSEWHERE), ("films", ANN)]
    )
    async def test_nobody_else_finds_lists_or_removes_it(
        self, store: Store, app: str, owner: Owner
    ) -> None:
        await insert(store, a_blob(upload="upload_1"))

        assert await store.find_blob(app, owner, "blob_1") is None
        assert await store.find_upload(app, owner, "upload_1") is None
        assert [] == await names(store, app, owner)
        gone = await store.transact(
            lambda tx: store.remove_blobs(tx.connection, app, owner, ["blob_1"])
        )
        assert [] == list(gone)
        assert ["blob_1"] == await names(store, "songs", ANN)

    async def test_blobs_are_listed_in_the_order_they_came(self, store: Store) -> None:
        await insert(store, *(a_blob(name) for name in ("b_3", "b_1", "b_2")))
        await insert(store, a_blob("b_0", owner=BOB), a_blob("b_9", app="films"))

        assert ["b_3", "b_1", "b_2"] == await names(store, "songs", ANN)
        first, *_ = await store.list_blobs("songs", ANN, after=0, limit=1)
        assert ["b_1", "b_2"] == await names(store, "songs", ANN, after=first.seq)

    async def test_an_upload_is_stored_once(self, store: Store) -> None:
        stored = await insert(
            store, a_blob("b_1", upload="u"), a_blob("b_2", upload="u"), a_blob("b_3")
        )

        assert [True, False, True] == [seq is not None for seq in stored]
        assert ["b_1", "b_3"] == await names(store, "songs", ANN)

    async def test_a_row_exists_only_if_its_transaction_commits(
        self, store: Store
    ) -> None:
        def body(tx: Tx) -> None:
            store.insert_blob(tx.connection, a_blob())
            raise KeyError("no")

        with pytest.raises(KeyError):
            await store.transact(body)
        assert await store.find_blob("songs", ANN, "blob_1") is None

    async def test_removed_ids_are_told(self, store: Store) -> None:
        await insert(store, a_blob("b_1"), a_blob("b_2"), a_blob("b_3"))
        gone = await store.transact(
            lambda tx: store.remove_blobs(
                tx.connection, "songs", ANN, ["b_1", "b_3", "b_8"]
            )
        )

        assert {"b_1", "b_3"} == set(gone)
        assert ["b_2"] == await names(store, "songs", ANN)

    async def test_the_sweep_learns_which_ids_have_rows(self, store: Store) -> None:
        await insert(store, a_blob("b_1"), a_blob("b_2", owner=ELSEWHERE, app="films"))
        found = await store.find_blobs(["b_1", "b_2", "b_3"])

        assert {"b_1": ANN, "b_2": ELSEWHERE} == {blob.id: blob.owner for blob in found}
        assert [] == list(await store.find_blobs([]))

    async def test_what_has_expired_is_removed_and_told(self, store: Store) -> None:
        await insert(
            store,
            a_blob("b_1", expires_at=NOON + 1),
            a_blob("b_2", expires_at=NOON),
            a_blob("b_3", expires_at=NOON + 2),
            a_blob("b_4"),
        )

        assert ["b_2"] == list(await store.remove_expired_blobs(NOON + 1, limit=1))
        assert ["b_1"] == list(await store.remove_expired_blobs(NOON + 1, limit=9))
        assert [] == list(await store.remove_expired_blobs(NOON + 1, limit=9))
        assert ["b_3", "b_4"] == await names(store, "songs", ANN)
