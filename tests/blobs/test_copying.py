"""Contents go from one blob store to another, however often it is begun."""

import pytest

from backburner.blobs.copying import PAGE, copy
from backburner.blobs.filesystem import FileBlobs
from backburner.blobs.memory import MemoryBlobs
from backburner.blobs.s3 import S3Blobs
from backburner.clock import SystemClock, SystemDice
from backburner.domain.blobs.blob import BlobKey
from backburner.domain.errors import BlobMissing
from backburner.ports.faults import NoFaults

KEYS = [BlobKey(f"job_{n}", name) for n in range(3) for name in ("input", "output-a")]


@pytest.fixture
def now():
    return SystemClock().now()


@pytest.fixture
def source(tmp_path):
    blobs = FileBlobs(tmp_path / "here", SystemDice(), NoFaults())
    blobs.put([(key, key.id.encode() * 1000) for key in KEYS])
    return blobs


@pytest.fixture
def target():
    return MemoryBlobs(SystemClock())


def test_every_content_arrives_and_twice_is_once(source, target, now):
    counts = [copy(source, target, now=now) for _ in range(2)]

    assert [len(KEYS)] * 2 == counts
    assert [source.read(key) for key in KEYS] == [target.read(key) for key in KEYS]


def test_what_came_by_half_or_otherwise_is_put_again(source, target, now):
    target.put([(KEYS[0], b"half"), (KEYS[1], source.read(KEYS[1]))])
    copy(source, target, now=now)

    assert [source.read(key) for key in KEYS] == [target.read(key) for key in KEYS]


def test_more_than_a_page_of_jobs_is_copied(source, target, now):
    many = [BlobKey(f"job_m{n}", "input") for n in range(PAGE + 1)]
    source = MemoryBlobs(SystemClock())
    source.put([(key, b"x") for key in many])

    assert len(many) == copy(source, target, now=now)
    assert b"x" == target.read(many[-1])


def test_a_content_that_does_not_arrive_is_an_error(source, now):
    class Forgetful(MemoryBlobs):
        def put(self, blobs):
            super().put([(key, content[:-1]) for key, content in blobs])

    with pytest.raises(BlobMissing, match="differs from the original"):
        copy(source, Forgetful(SystemClock()), now=now)


def test_a_large_content_goes_to_an_object_store_and_back(source, s3_url, target, now):
    key = BlobKey("blob_1", "content")
    content = bytes(range(256)) * 50_000
    source.put([(key, content)])
    there = S3Blobs.from_url(s3_url, SystemDice(), NoFaults())
    counts = [copy(source, there, now=now), copy(there, target, now=now)]

    assert [len(KEYS) + 1] * 2 == counts
    assert content == target.read(key)
