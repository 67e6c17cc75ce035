"""Every blob store of ours keeps the promises of its port."""

import pytest

from backburner.blobs.filesystem import FileBlobs
from backburner.blobs.memory import MemoryBlobs
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
