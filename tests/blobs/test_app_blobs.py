"""Blobs of applications from Python: written and read as streams."""

import asyncio
import hashlib
from dataclasses import replace
from datetime import timedelta
from itertools import repeat

import pytest
import sqlalchemy as sa

from backburner import (
    App,
    Backburner,
    BlobMismatch,
    BlobMissing,
    BlobTooLarge,
    ClaimLost,
    Context,
    InvalidInput,
    Owner,
    Settings,
    capability,
)
from backburner.clock import SystemClock
from backburner.domain.blobs.app_blob import upload_key
from backburner.domain.errors import StoreUnavailable
from backburner.engine.blobs.payloads import Sweeper
from backburner.engine.submit.submission import LOCAL
from backburner.testing.doubles import FrozenClock
from backburner.testing.samples import a_claim

MIB = 1024 * 1024
SONGS = "songs"
OTHERS = [("films", LOCAL), (SONGS, Owner("default", "2")), (SONGS, Owner("x", "1"))]
ADDRESS = "upload_0190a0b0-0000-7000-8000-000000000000"

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)

SENT = pytest.mark.usefixtures("_sent")

notes = sa.Table("notes", sa.MetaData(), sa.Column("blob", sa.Text))


@capability("copy")
async def copy(ctx: Context, blob_id: str) -> str:
    """Copy a blob of the job's owner, piece by piece."""
    source = ctx.app_blobs.read(blob_id)
    return (await ctx.app_blobs.write(source, name="copy")).id


@capability("stray")
async def stray(ctx: Context, _value: str) -> str:
    return (await ctx.app_blobs.write(b"x")).id


@pytest.fixture
def root(tmp_path):
    return tmp_path / "contents"


@pytest.fixture
async def bb(store_url, root):
    settings = Settings(
        store=store_url, blobs=root.as_uri(), poll_seconds=0.05, blob_limit=8 * MIB
    )
    app = App(SONGS, capabilities=[copy])
    async with Backburner(settings, apps=[app], capabilities=[stray]) as opened:
        yield opened


@pytest.fixture
def songs(bb):
    return bb.blobs(SONGS)


def left_in(root):
    """Return whatever of contents is in the blob store, whole or half."""
    return list(root.glob("*/*"))


async def pieces(*given):
    for piece in given:
        yield piece


async def content(blobs, blob, **part):
    return b"".join([piece async for piece in blobs.read(blob.id, **part)])


def sweeper(bb, *, days=0):
    clock = FrozenClock(SystemClock().now())
    clock.advance(timedelta(days=days))
    return Sweeper(bb.engine.store, bb.engine.payloads, clock)


async def test_a_blob_is_measured_while_it_is_read(songs):
    given = [bytes([number]) * 700_000 for number in range(5)]
    whole = b"".join(given)
    blob = await songs.write(pieces(*given), name="a.mp3", content_type="audio/mpeg")

    assert (len(whole), hashlib.sha256(whole).hexdigest()) == (blob.size, blob.sha256)
    assert ("a.mp3", "audio/mpeg") == (blob.name, blob.content_type)
    assert blob == await songs.find(blob.id)
    assert whole == await content(songs, blob)


@pytest.mark.parametrize("source", [b"", b"abc", [b"a", b"", b"bc"], iter([b"abc"])])
async def test_a_source_may_be_bytes_or_pieces(songs, source):
    expected = b"" if source == b"" else b"abc"
    blob = await songs.write(source)

    assert expected == await content(songs, blob)
    assert len(expected) == blob.size


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"offset": 2}, b"cde"),
        ({"offset": 1, "size": 2}, b"bc"),
        ({"offset": 3, "size": 9}, b"de"),
        ({"offset": 9}, b""),
    ],
)
async def test_a_part_is_read(songs, part, expected):
    assert expected == await content(songs, await songs.write(b"abcde"), **part)


@pytest.mark.parametrize(("app", "owner"), OTHERS)
async def test_another_owner_or_application_sees_nothing(bb, songs, app, owner):
    blob = await songs.write(b"mine")
    others = bb.blobs(app, owner)

    assert [] == list(await others.list())
    assert [] == list(await others.delete(blob.id))
    with pytest.raises(BlobMissing):
        await others.find(blob.id)
    with pytest.raises(BlobMissing):
        await content(others, blob)
    assert b"mine" == await content(songs, blob)


async def test_blobs_are_listed_page_by_page(songs):
    stored = [await songs.write(b"x", name=name) for name in "abc"]
    first = await songs.list(limit=2)
    rest = await songs.list(after=first[-1].seq)

    assert stored == [*first, *rest]


async def test_a_deleted_blob_is_gone_with_its_bytes(songs, root):
    kept, gone = [await songs.write(b"x") for _ in range(2)]

    assert [gone.id] == list(await songs.delete(gone.id, "blob_unknown"))
    assert [kept] == list(await songs.list())
    assert [kept.id] == [path.name for path in left_in(root)]


async def test_a_blob_whose_time_is_over_is_not_found_and_then_deleted(bb, songs, root):
    blob = await songs.write(b"x", keep=timedelta(0))
    kept = await songs.write(b"x", keep=timedelta(hours=1))
    with pytest.raises(BlobMissing):
        await songs.find(blob.id)
    await sweeper(bb).expire()

    assert [kept] == list(await songs.list())
    assert [kept.id] == [path.name for path in left_in(root)]


@pytest.mark.parametrize("max_size", [None, 5, 3 * MIB])
async def test_an_endless_source_is_refused_and_leaves_nothing(songs, root, max_size):
    with pytest.raises(BlobTooLarge):
        await songs.write(repeat(bytes(MIB)), max_size=max_size)

    assert [] == left_in(root)
    assert [] == list(await songs.list())


async def test_a_source_that_fails_leaves_nothing(songs, root):
    async def failing():
        yield bytes(2 * MIB)
        raise KeyError("the client left")

    with pytest.raises(KeyError):
        await songs.write(failing())
    assert [] == left_in(root)
    assert [] == list(await songs.list())


async def test_a_write_that_is_cancelled_leaves_nothing(songs, root):
    begun = asyncio.Event()

    async def endless():
        yield bytes(2 * MIB)
        begun.set()
        await asyncio.Event().wait()

    writing = asyncio.create_task(songs.write(endless()))
    await begun.wait()
    during = left_in(root)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing

    assert 1 == len(during)
    assert [] == left_in(root)


@BOTH
async def test_a_row_commits_with_what_the_application_writes(bb, songs, root):
    await bb.transact(lambda tx: notes.create(tx.connection))

    def note(tx, blob):
        tx.connection.execute(notes.insert(), {"blob": blob.id})

    def fail(tx, blob):
        note(tx, blob)
        raise KeyError("no")

    blob = await songs.write(b"x", also=note)
    with pytest.raises(KeyError):
        await songs.write(b"y", also=fail)
    noted = await bb.read(lambda view: view.connection.execute(sa.select(notes)).all())

    assert [(blob.id,)] == [tuple(row) for row in noted]
    assert [blob] == list(await songs.list())
    assert [blob.id] == [path.name for path in left_in(root)]


@BOTH
async def test_a_cancel_during_the_commit_keeps_what_was_committed(bb, songs):
    """The application has noted the blob, so its content must stay."""
    await bb.transact(lambda tx: notes.create(tx.connection))

    def note(tx, blob):
        tx.connection.execute(notes.insert(), {"blob": blob.id})

    async def commit(body):
        stored = await bb.engine.transact(body)
        writing.cancel()
        await asyncio.to_thread(int)
        return stored

    cancelling = replace(songs._service, commit=commit).of(SONGS, LOCAL)
    writing = asyncio.create_task(cancelling.write(b"x", also=note))
    with pytest.raises(asyncio.CancelledError):
        await writing
    [noted] = await bb.read(lambda v: v.connection.execute(sa.select(notes)).all())

    assert b"x" == await content(songs, await songs.find(noted.blob))


@BOTH
async def test_a_cancel_waits_for_a_commit_that_takes_long(bb, songs, root):
    """Otherwise the server could store the row after the bytes were deleted."""
    reached, released, late = asyncio.Event(), asyncio.Event(), []

    async def commit(body):
        reached.set()
        try:
            await released.wait()
        except asyncio.CancelledError:  # the server does not notice
            late.append(body)
            raise
        return await bb.engine.transact(body)

    stalled = replace(songs._service, commit=commit).of(SONGS, LOCAL)
    writing = asyncio.create_task(stalled.write(b"x"))
    await reached.wait()
    writing.cancel()
    await asyncio.to_thread(int)
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    for body in late:
        await bb.engine.transact(body)

    assert [] == list(await songs.list())
    assert [] == left_in(root)


async def test_an_unknown_commit_leaves_the_bytes_to_the_sweep(
    bb, songs, root, monkeypatch
):
    async def lost(*_given, **_options):
        raise StoreUnavailable("the connection was lost")

    monkeypatch.setattr(bb.engine.store, "transact", lost)
    with pytest.raises(StoreUnavailable):
        await songs.write(b"x")
    monkeypatch.undo()
    left = left_in(root)
    await sweeper(bb, days=2).sweep()

    assert 1 == len(left)
    assert [] == left_in(root)


async def test_the_sweep_keeps_what_has_a_row(bb, songs):
    blob = await songs.write(b"x")
    await sweeper(bb, days=2).sweep()

    assert b"x" == await content(songs, blob)


@pytest.mark.parametrize(
    "label", [{"name": "a" * 256}, {"name": "a\nb"}, {"content_type": "text"}]
)
async def test_what_cannot_be_kept_or_sent_as_a_label_is_refused(songs, label):
    with pytest.raises(InvalidInput):
        await songs.write(b"x", **label)


async def test_a_handler_has_the_blobs_of_its_application_and_owner(bb):
    owner = Owner("t", "ann")
    blob = await bb.blobs(SONGS, owner).write(b"la" * MIB)
    await bb.start_worker()
    ticket = await bb.submit(copy, blob.id, owner=owner)
    copied = await ticket.result()
    other = await bb.submit(stray, "", max_attempts=1)
    ended = await other.wait()

    assert b"la" * MIB == await content(
        bb.blobs(SONGS, owner), await bb.blobs(SONGS, owner).find(copied)
    )
    assert "stray belongs to no application" in ended.error.message


@BOTH
async def test_a_handler_that_lost_its_job_stores_nothing(bb, songs, root):
    claim = a_claim(capability="copy", tenant=LOCAL.tenant, user=LOCAL.user)
    with pytest.raises(ClaimLost):
        await bb.engine.payloads.of_app(claim).write(b"late")

    assert [] == list(await songs.list())
    assert [] == left_in(root)


class TestConfirm:
    """What came by a signed URL is nobody's until the application confirms it."""

    @pytest.fixture
    def _sent(self, bb):
        key = upload_key(ADDRESS, SONGS, LOCAL)
        bb._parts.blobs.blobs.put([(key, b"hello")])

    @SENT
    async def test_an_upload_becomes_a_blob_once(self, songs, root):
        first = await songs.confirm(ADDRESS, name="a", size=5)
        again = await songs.confirm(ADDRESS)

        assert first == again
        assert b"hello" == await content(songs, first)
        assert [first.id] == [path.name for path in left_in(root)]

    @BOTH
    @SENT
    async def test_two_confirm_at_once_and_get_one_blob(self, songs, root):
        first, again = await asyncio.gather(
            *(songs.confirm(ADDRESS) for _ in range(2)), return_exceptions=True
        )

        assert first == again
        assert [first] == list(await songs.list())
        assert [first.id] == [path.name for path in left_in(root)]

    @pytest.mark.parametrize(("app", "owner"), OTHERS)
    @SENT
    async def test_nobody_else_confirms_it(self, bb, app, owner):
        with pytest.raises(BlobMissing):
            await bb.blobs(app, owner).confirm(ADDRESS)

    @pytest.mark.parametrize("upload", ["upload_unknown", "blob_1", "../../etc", ""])
    async def test_what_was_never_sent_is_missing(self, songs, upload):
        with pytest.raises(BlobMissing):
            await songs.confirm(upload)

    @pytest.mark.parametrize(
        ("expected", "error"),
        [
            ({"size": 4}, BlobMismatch),
            ({"md5": "0" * 32}, BlobMismatch),
            ({"sha256": "0" * 64}, BlobMismatch),
            ({"max_size": 4}, BlobTooLarge),
        ],
    )
    @SENT
    async def test_what_is_not_as_announced_is_refused_and_deleted(
        self, songs, root, expected, error
    ):
        with pytest.raises(error):
            await songs.confirm(ADDRESS, **expected)

        assert [] == left_in(root)
        assert [] == list(await songs.list())

    @SENT
    async def test_digests_that_agree_are_accepted(self, songs):
        blob = await songs.confirm(
            ADDRESS,
            size=5,
            md5=hashlib.md5(b"hello", usedforsecurity=False).hexdigest().upper(),
            sha256=hashlib.sha256(b"hello").hexdigest(),
        )

        assert 5 == blob.size

    @SENT
    async def test_an_upload_that_nobody_confirms_is_swept(self, bb, root):
        await sweeper(bb).sweep()
        left = left_in(root)
        await sweeper(bb, days=2).sweep()

        assert [ADDRESS] == [path.name for path in left]
        assert [] == left_in(root)
