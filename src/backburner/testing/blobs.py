"""
The conformance suite for blob stores: subclass `BlobConformance`, supply two fixtures.

`blobs` is an empty blob store; `now` returns the time in milliseconds by which it
determines the age of contents.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from backburner.domain.blobs.blob import BlobKey
from backburner.domain.errors import BlobMissing
from backburner.domain.jobs.job import Instant
from backburner.ports.blobs import BlobStore
from backburner.ports.finding import Status

FIRST = BlobKey("job_1", "input")
SECOND = BlobKey("job_1", "output-a")
OTHER = BlobKey("job_2", "input")
MINUTE = 60_000
MIB = 1024 * 1024


class BlobConformance:
    """Tests of everything that `ports/blobs.py` guarantees."""

    @pytest.mark.parametrize("size", [0, 1, 64 * 1024, 5 * 1024 * 1024 + 1])
    def test_a_content_is_read_as_it_was_put(self, blobs: BlobStore, size: int) -> None:
        content = bytes(range(256)) * (size // 256) + bytes(size % 256)
        blobs.put([(FIRST, content)])

        assert content == blobs.read(FIRST)
        assert size == blobs.size(FIRST)

    def test_many_are_put_at_once_and_kept_apart(self, blobs: BlobStore) -> None:
        blobs.put([(FIRST, b"one"), (SECOND, b"two"), (OTHER, b"three")])

        assert [b"one", b"two", b"three"] == [
            blobs.read(key) for key in (FIRST, SECOND, OTHER)
        ]

    @pytest.mark.parametrize("sizes", [[], [0], [3], [1, 0, 2], [7 * MIB, 1, 5 * MIB]])
    def test_a_content_is_written_piece_by_piece(
        self, blobs: BlobStore, sizes: Sequence[int]
    ) -> None:
        pieces = [bytes([number]) * size for number, size in enumerate(sizes, 1)]
        writer = blobs.writer(FIRST)
        for piece in pieces:
            writer.write(piece)
        writer.finish()
        writer.abort()

        assert b"".join(pieces) == blobs.read(FIRST)
        assert ["input"] == list(blobs.names("job_1"))

    def test_a_content_is_not_seen_before_it_is_finished(
        self, blobs: BlobStore
    ) -> None:
        writer = blobs.writer(FIRST)
        for _ in range(3):
            writer.write(bytes(5 * MIB))

        with pytest.raises(BlobMissing):
            blobs.read(FIRST)
        assert [] == list(blobs.names("job_1"))
        writer.finish()
        assert 15 * MIB == blobs.size(FIRST)

    @pytest.mark.parametrize("size", [0, 1, 13 * MIB])
    def test_an_aborted_write_leaves_nothing(
        self, blobs: BlobStore, now: Callable[[], Instant], size: int
    ) -> None:
        writer = blobs.writer(FIRST)
        for begin in range(0, size, MIB):
            writer.write(bytes(min(MIB, size - begin)))
        writer.abort()
        writer.abort()

        with pytest.raises(BlobMissing):
            blobs.size(FIRST)
        later = now() + MINUTE
        assert [] == list(blobs.jobs(before=later, after=None, limit=9))
        assert 0 == blobs.discard_unfinished(before=later)

    def test_an_aborted_write_leaves_the_content_that_was_there(
        self, blobs: BlobStore
    ) -> None:
        blobs.put([(FIRST, b"first")])
        writer = blobs.writer(FIRST)
        writer.write(b"second")
        writer.abort()

        assert b"first" == blobs.read(FIRST)

    def test_a_write_replaces_the_content_that_was_there(
        self, blobs: BlobStore
    ) -> None:
        blobs.put([(FIRST, b"a longer first")])
        writer = blobs.writer(FIRST)
        writer.write(b"second")
        writer.finish()

        assert b"second" == blobs.read(FIRST)

    def test_what_a_dead_process_was_writing_is_swept(
        self, blobs: BlobStore, now: Callable[[], Instant]
    ) -> None:
        writer = blobs.writer(FIRST)
        for _ in range(13):
            writer.write(bytes(MIB))
        later = now() + MINUTE
        blobs.delete(blobs.jobs(before=later, after=None, limit=9))
        blobs.discard_unfinished(before=later)

        assert [] == list(blobs.jobs(before=later, after=None, limit=9))
        assert 0 == blobs.discard_unfinished(before=later)
        writer.abort()

    def test_the_names_of_a_job_are_listed(self, blobs: BlobStore) -> None:
        blobs.put([(SECOND, b"two"), (FIRST, b"one"), (OTHER, b"three")])

        assert ["input", "output-a"] == list(blobs.names("job_1"))
        assert [] == list(blobs.names("job_9"))

    @pytest.mark.parametrize(
        ("offset", "size", "expected"),
        [(0, 2, b"ab"), (2, -1, b"cde"), (3, 9, b"de"), (5, 1, b""), (9, 1, b"")],
    )
    def test_a_part_can_be_read(
        self, blobs: BlobStore, offset: int, size: int, expected: bytes
    ) -> None:
        blobs.put([(FIRST, b"abcde")])

        assert expected == blobs.read(FIRST, offset=offset, size=size)

    def test_the_same_key_again_replaces_the_content(self, blobs: BlobStore) -> None:
        blobs.put([(FIRST, b"a longer first")])
        blobs.put([(FIRST, b"second")])

        assert b"second" == blobs.read(FIRST)

    @pytest.mark.parametrize("key", [SECOND, OTHER])
    def test_what_was_never_put_is_missing(
        self, blobs: BlobStore, key: BlobKey
    ) -> None:
        blobs.put([(FIRST, b"one")])

        with pytest.raises(BlobMissing):
            blobs.read(key)
        with pytest.raises(BlobMissing):
            blobs.size(key)

    def test_all_of_a_job_is_deleted_and_nothing_else(self, blobs: BlobStore) -> None:
        blobs.put([(FIRST, b"one"), (SECOND, b"two"), (OTHER, b"three")])

        blobs.delete(["job_1", "job_9"])

        with pytest.raises(BlobMissing):
            blobs.read(FIRST)
        with pytest.raises(BlobMissing):
            blobs.read(SECOND)
        assert b"three" == blobs.read(OTHER)

    def test_deleting_twice_is_no_error(self, blobs: BlobStore) -> None:
        blobs.put([(FIRST, b"one")])
        blobs.delete(["job_1"])
        blobs.delete(["job_1"])
        blobs.put([(FIRST, b"again")])

        assert b"again" == blobs.read(FIRST)

    def test_jobs_with_old_blobs_are_listed_page_by_page(
        self, blobs: BlobStore, now: Callable[[], Instant]
    ) -> None:
        names = {f"job_{number}" for number in range(100, 125)}
        blobs.put([(BlobKey(name, "input"), b"x") for name in names])
        later = now() + MINUTE
        first = blobs.jobs(before=later, after=None, limit=20)
        rest = blobs.jobs(before=later, after=first[-1], limit=20)

        assert (20, 5) == (len(first), len(rest))
        assert names == {*first, *rest}
        assert [] == list(blobs.jobs(before=later, after=rest[-1], limit=20))

    def test_jobs_with_young_blobs_are_not_listed(
        self, blobs: BlobStore, now: Callable[[], Instant]
    ) -> None:
        blobs.put([(FIRST, b"x")])

        assert [] == list(blobs.jobs(before=now() - MINUTE, after=None, limit=9))

    def test_nothing_is_listed_where_nothing_was_put(
        self, blobs: BlobStore, now: Callable[[], Instant]
    ) -> None:
        assert [] == list(blobs.jobs(before=now() + MINUTE, after=None, limit=9))

    def test_many_threads_may_put_and_read(self, blobs: BlobStore) -> None:
        keys = [BlobKey(f"job_{number % 4}", f"n-{number}") for number in range(64)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: blobs.put([(key, key.id.encode())]), keys))
            read = list(pool.map(blobs.read, keys))

        assert [key.id.encode() for key in keys] == read

    def test_a_sound_store_says_so(self, blobs: BlobStore) -> None:
        found = blobs.examine()

        assert ["blobs"] == [finding.name for finding in found]
        assert {Status.FAIL}.isdisjoint({finding.status for finding in found})
