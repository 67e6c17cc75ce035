"""Where large contents go if nobody says, and what a wrong word gets."""

import pytest

from backburner import ConfigurationError, Settings
from backburner.adapters import find_blobs
from backburner.clock import SystemDice
from backburner.ports.faults import NoFaults


def root_of(**settings):
    return find_blobs(Settings(**settings), SystemDice(), NoFaults()).root


def test_they_lie_beside_the_sqlite_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert tmp_path / "a b.db-blobs" == root_of(store="sqlite:///a b.db")
    assert tmp_path / "x.db-blobs" == root_of(store=f"sqlite:///{tmp_path}/x.db?a=1")


def test_they_lie_in_the_current_folder_of_an_instance_over_a_server(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)

    assert tmp_path / ".backburner-blobs" == root_of(store="postgresql://x/y")


def test_they_lie_where_the_setting_says(tmp_path):
    assert tmp_path / "here" == root_of(blobs=(tmp_path / "here").as_uri())


def test_a_place_that_nobody_knows_is_refused():
    with pytest.raises(ConfigurationError, match="BACKBURNER_BLOBS: no blob store for"):
        root_of(blobs="ftp://x/y")


def test_a_link_to_the_store_has_the_folder_of_the_file(tmp_path):
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "there.db")

    assert tmp_path / "there.db-blobs" == root_of(store=f"sqlite:///{link}")


def test_a_folder_beside_the_link_is_used_on(tmp_path):
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "there.db")
    (tmp_path / "link.db-blobs").mkdir()

    assert tmp_path / "link.db-blobs" == root_of(store=f"sqlite:///{link}")
