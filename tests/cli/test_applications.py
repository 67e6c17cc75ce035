"""What an application brings, as the command line and its processes show it."""

import json
import shutil
from pathlib import Path

import httpx2
import pytest

TOKEN = {"SONGS_TOKEN": "a token of the songs"}


@pytest.fixture
def songs(tmp_path):
    """The application `songs`, in the current folder of all processes."""
    shutil.copy(Path(__file__).parent / "apps" / "songs.py", tmp_path)
    pages = tmp_path / "pages"
    pages.mkdir()
    pages.joinpath("index.html").write_text("<h1>Songs</h1>")
    return "songs:app"


@pytest.fixture
def installed(songs, tmp_path):
    """The same, installed beside one that fails and one whose extra is missing."""
    packages = tmp_path / "packages"
    info = packages / "songs-1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(
        "Name: songs\nVersion: 1.0\nProvides-Extra: choir\n"
        "Requires-Dist: not-there; extra == 'choir'\n"
    )
    info.joinpath("entry_points.txt").write_text(
        f"[backburner.apps]\nsongs = {songs}\nbroken = broken:app\nchoir = choir:app\n"
    )
    tmp_path.joinpath("songs.py").rename(packages / "songs.py")
    tmp_path.joinpath("pages").rename(packages / "pages")
    packages.joinpath("broken.py").write_text("1 / 0\n")
    packages.joinpath("choir.py").write_text("import not_there\n")
    return {"PYTHONPATH": str(packages)}


@pytest.mark.parametrize("command", [["worker"], ["serve", "--dev", "--port", "0"]])
def test_a_wrong_setting_of_an_application_refuses_the_start(run, songs, command):
    ended = run(*command, "--app", songs, SONGS_LIMIT="many", **TOKEN)

    assert 2 == ended.returncode
    (line,) = ended.stderr.splitlines()
    assert line.startswith("backburner: SONGS_LIMIT: Input should be a valid integer")
    assert TOKEN["SONGS_TOKEN"] not in line


def test_doctor_shows_the_settings_of_an_application(run, songs):
    good = run("doctor", "--app", songs, "--json", SONGS_LIMIT="8", **TOKEN)
    bad = run("doctor", "--app", songs, "--json", SONGS_LIMIT="0", **TOKEN)

    assert "SONGS_LIMIT=8, SONGS_TOKEN=set" in told(good, "settings of songs")
    assert 9 == bad.returncode
    assert "SONGS_LIMIT: Input should be greater" in told(bad, "start")
    assert TOKEN["SONGS_TOKEN"] not in good.stdout + bad.stdout


def told(ended, name):
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    return " ".join(each["message"] for each in found if each["name"] == name)


def test_a_server_runs_what_an_application_brings(serve, run, songs):
    server = serve("--app", songs, SONGS_LIMIT="8", BACKBURNER_LOG_FORMAT="json")

    ended = run("submit", "songs.limit", "null", "--wait", "--url", server.url)
    page = httpx2.get(f"{server.url}/apps/songs/", trust_env=False)
    metrics = httpx2.get(f"{server.url}/metrics", trust_env=False)

    assert "8\n" == ended.stdout
    assert "<h1>Songs</h1>" == page.text
    assert 'songs_sung_total{singer="choir"} 1.0' in metrics.text
    line = json.loads(server.says('"event": "sung"'))
    assert 2 == line["songCount"]
    assert "lyrics" not in line


def test_the_pages_of_an_application_that_is_not_served_are_not_there(serve, songs):
    server = serve("ai", "--app", songs, BACKBURNER_WEBHOOK_ALLOW="127.0.0.1")

    page = httpx2.get(f"{server.url}/apps/songs/", trust_env=False)

    assert 404 == page.status_code


def test_an_application_in_this_folder_has_its_commands(run, songs):
    ended = run("songs", "limit", BACKBURNER_APPS=songs, SONGS_LIMIT="8")
    wrong = run("songs", "limit", BACKBURNER_APPS=songs, SONGS_LIMIT="many")
    without = run("songs", "limit", BACKBURNER_APPS="")

    assert "8\n" == ended.stdout
    assert (2, 2) == (wrong.returncode, without.returncode)
    assert wrong.stderr.startswith("backburner: SONGS_LIMIT: ")
    assert "No such command 'songs'" in without.stderr


def test_a_plug_in_is_imported_for_its_own_commands_only(run, installed, tmp_path):
    other = run("version", **installed)
    was_imported = tmp_path.joinpath("imported").exists()
    ended = run("songs", "limit", SONGS_LIMIT="8", **installed)

    assert ("0.1.0\n", False) == (other.stdout, was_imported)
    assert "8\n" == ended.stdout
    assert tmp_path.joinpath("imported").exists()


def test_help_is_silent_about_an_extra_that_is_not_installed(run, installed):
    listed = run("--help", **installed)
    called = run("worker", "--app", "choir", **installed)

    assert "choir" not in listed.stdout + listed.stderr
    assert 2 == called.returncode
    assert (
        "backburner: application 'choir' needs the Python package 'not_there', "
        'which is not installed: pip install "songs[choir]"\n'
    ) == called.stderr


def test_a_plug_in_that_cannot_be_imported_hides_no_other(run, installed):
    listed = run("--help", **installed)
    called = run("broken", "limit", **installed)

    assert 0 == listed.returncode
    assert "songs" in listed.stdout
    assert "Sing." in listed.stdout
    assert "application 'broken': ZeroDivisionError" in listed.stderr
    assert 2 == called.returncode
    assert called.stderr.startswith("backburner: application 'broken': ZeroDivision")
