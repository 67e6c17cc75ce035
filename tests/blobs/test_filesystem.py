"""Blobs in a folder: what only a folder can get wrong."""

import os
import resource
import stat
from contextlib import contextmanager
from pathlib import Path

import pytest

from backburner.blobs.filesystem import FileBlobs
from backburner.clock import SystemDice
from backburner.domain.blobs.blob import BlobKey
from backburner.domain.errors import (
    BlobMissing,
    ConfigurationError,
    StoreFull,
    StoreUnavailable,
)
from backburner.ports.faults import NoFaults

KEY = BlobKey("job_1", "input")


class Killed(BaseException):
    """The process would end here."""


class KillAt:
    """Ends at one failpoint."""

    def __init__(self, name):
        self.name = name

    def hit(self, name):
        if name == self.name:
            raise Killed


@pytest.fixture
def root(tmp_path):
    return tmp_path / "blobs"


@pytest.fixture
def blobs(root):
    return FileBlobs(root, SystemDice(), NoFaults())


@contextmanager
def files_may_have(size):
    """Have the kernel refuse larger files, as a full disk would refuse them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def files_in(root):
    return [path for path in root.rglob("*") if path.is_file()]


def test_only_its_owner_may_look_inside(blobs, root):
    blobs.put([(KEY, b"secret")])
    modes = {
        path.relative_to(root).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in root.rglob("*")
    }

    assert {"_1": 0o700, "_1/job_1": 0o700, "_1/job_1/input": 0o600} == modes
    assert 0o700 == stat.S_IMODE(root.stat().st_mode)


def test_a_content_that_finds_no_room_leaves_nothing(blobs, root):
    with files_may_have(100_000), pytest.raises(StoreFull):
        blobs.put([(KEY, b"x" * 200_000)])
    left = files_in(root)
    blobs.put([(KEY, b"x" * 200_000)])

    assert [] == left
    assert 200_000 == blobs.size(KEY)


def test_a_content_that_finds_no_room_leaves_the_one_before(blobs, root):
    blobs.put([(KEY, b"before")])
    with files_may_have(100_000), pytest.raises(StoreFull):
        blobs.put([(KEY, b"x" * 200_000)])

    assert b"before" == blobs.read(KEY)
    assert 1 == len(files_in(root))


def test_a_content_has_no_name_before_it_is_whole(root):
    blobs = FileBlobs(root, SystemDice(), KillAt("blobs.written"))
    with pytest.raises(Killed):
        blobs.put([(KEY, b"half")])

    with pytest.raises(BlobMissing):
        blobs.read(KEY)


@pytest.mark.parametrize(
    "job",
    ["..", ".", "", "../job_1", "a/b", "/etc", "a\x00b", "job_1/..", "jöb", "x" * 65],
)
def test_no_name_leads_out_of_the_folder(blobs, root, job):
    blobs.put([(KEY, b"x")])
    outside = root.parent / "input"
    outside.write_bytes(b"outside")
    key = BlobKey(job, "input")

    with pytest.raises(BlobMissing):
        blobs.read(key)
    with pytest.raises(BlobMissing):
        blobs.size(key)
    with pytest.raises(BlobMissing):
        blobs.put([(key, b"y")])
    blobs.delete([job])
    assert b"outside" == outside.read_bytes()
    assert b"x" == blobs.read(KEY)


def test_a_link_is_not_followed_to_a_file(blobs, root):
    outside = root.parent / "secret"
    outside.write_bytes(b"secret")
    blobs.put([(KEY, b"x")])
    path = root / "_1" / "job_1" / "input"
    path.unlink()
    path.symlink_to(outside)

    with pytest.raises(BlobMissing):
        blobs.read(KEY)
    with pytest.raises(BlobMissing):
        blobs.size(KEY)


def test_a_link_is_not_followed_to_a_folder(blobs, root):
    outside = root.parent / "elsewhere"
    outside.mkdir()
    (outside / "input").write_bytes(b"secret")
    (root / "_1").mkdir(parents=True)
    (root / "_1" / "job_1").symlink_to(outside)

    with pytest.raises(BlobMissing):
        blobs.read(KEY)
    blobs.delete(["job_1"])
    assert b"secret" == (outside / "input").read_bytes()


def test_what_else_lies_in_the_folder_is_left_alone(blobs, root):
    blobs.put([(KEY, b"x")])
    (root / "notes.txt").write_text("mine")
    (root / "_0").write_text("mine too")

    assert ["job_1"] == list(blobs.jobs(before=2**50, after=None, limit=9))


def test_a_folder_that_cannot_be_used_is_said(blobs, root):
    root.write_text("a file")

    with pytest.raises(StoreUnavailable):
        blobs.put([(KEY, b"x")])


@pytest.mark.parametrize("url", ["file://host/x", "file:relative", "file:///", "file:"])
def test_a_url_that_names_no_folder_is_refused(url):
    with pytest.raises(ConfigurationError, match="does not name a folder"):
        FileBlobs.from_url(url, SystemDice(), NoFaults())


def test_a_url_that_names_a_file_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")

    with pytest.raises(ConfigurationError, match="is not a writable folder"):
        FileBlobs.from_url(path.as_uri(), SystemDice(), NoFaults())


def test_a_url_may_quote_what_a_url_must_quote(tmp_path):
    blobs = FileBlobs.from_url((tmp_path / "a b%#").as_uri(), SystemDice(), NoFaults())

    assert tmp_path / "a b%#" == blobs.root


def test_the_root_and_all_above_it_outlive_the_machine(tmp_path, monkeypatch):
    synced, fsync = set(), os.fsync

    def note(descriptor):
        synced.add(Path(f"/proc/self/fd/{descriptor}").resolve())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    root = tmp_path / "above" / "blobs"
    FileBlobs(root, SystemDice(), NoFaults()).put([(KEY, b"x")])

    assert {tmp_path, root.parent, root} <= synced
