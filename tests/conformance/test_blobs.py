"""Every blob store of ours keeps the promises of its port."""

import pytest
from obstore.store import MemoryStore

from backburner.blobs.filesystem import FileBlobs
from backburner.blobs.memory import MemoryBlobs
from backburner.blobs.objects import ObjectBlobs
from backburner.blobs.s3 import S3Blobs
from backburner.clock import SystemClock, SystemDice
from backburner.ports.faults import NoFaults
from backburner.testing.blobs import BlobConformance


class TestFileBlobs(BlobConformance):
    @pytest.fixture
    def blobs(self, tmp_path):
        return FileBlobs(tmp_path / "not" / "there", SystemDice(), NoFaults())

    @pytest.fixture
    def now(self):
        return SystemClock().now


class TestMemoryBlobs(BlobConformance):
    @pytest.fixture
    def blobs(self):
        return MemoryBlobs(SystemClock())

    @pytest.fixture
    def now(self):
        return SystemClock().now


class TestObjectBlobs(BlobConformance):
    @pytest.fixture
    def blobs(self):
        return ObjectBlobs(MemoryStore(), "a/prefix/", "memory")

    @pytest.fixture
    def now(self):
        return SystemClock().now


class TestS3Blobs(BlobConformance):
    @pytest.fixture
    def blobs(self, s3_url):
        return S3Blobs.from_url(s3_url, SystemDice(), NoFaults())

    @pytest.fixture
    def now(self):
        return SystemClock().now
