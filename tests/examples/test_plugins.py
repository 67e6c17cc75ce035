"""
The example plug-ins, installed with pip into an environment of their own.

They run on SQLite and PostgreSQL, their rows and blobs survive a move in both
directions, and when one is uninstalled the other one starts.
"""

import signal
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import sqlalchemy as sa

from backburner.client import Client
from tests.cli.conftest import the_environment
from tests.store.moving import a_store, read

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"
SECONDS = 120
OWN = ("notes_notes", "reports_reports", "app_blobs")


class Environment:
    """A virtual environment that sees what this one has, and what pip puts there."""

    def __init__(self, folder, settings):
        self._folder = folder
        self._settings = settings
        self._python = folder / "env" / "bin" / "python"
        made = [sys.executable, "-m", "venv", "--without-pip", folder / "env"]
        subprocess.run(made, check=True, timeout=SECONDS)
        [packages] = (folder / "env" / "lib").glob("python*/site-packages")
        ours = sysconfig.get_paths()["purelib"]
        line = f"import site; site.addsitedir({ours!r})\n"
        (packages / "ours.pth").write_text(line)

    def pip(self, *arguments):
        command = [sys.executable, "-m", "pip", "--python", self._python, *arguments]
        self._run(command, check=True)

    def backburner(self, *arguments, **more):
        command = [self._python, "-P", "-m", "backburner", *arguments]
        return self._run(command, **more)

    def _run(self, command, *, check=False, **settings):
        return subprocess.run(
            command,
            cwd=self._folder,
            env={**self._settings, **settings},
            capture_output=True,
            text=True,
            check=check,
            timeout=SECONDS,
        )

    @contextmanager
    def serving(self, **settings):
        """Serve on a free port and yield the URL; stop it as an operator does."""
        command = [
            self._python,
            "-P",
            "-m",
            "backburner",
            "serve",
            "--dev",
            "--port",
            "0",
        ]
        with subprocess.Popen(
            command,
            cwd=self._folder,
            env={**self._settings, **settings},
            stderr=subprocess.PIPE,
            text=True,
        ) as server:
            try:
                ready = next((x for x in server.stderr if " is ready at " in x), "")
                assert ready, "it ended before it was ready"
                yield ready.split()[-1]
            finally:
                server.send_signal(signal.SIGTERM)
                server.communicate(timeout=SECONDS)


@pytest.fixture
def environment(tmp_path):
    settings = the_environment(
        BACKBURNER_STORE="sqlite:///first.db",
        BACKBURNER_BLOBS=f"file://{tmp_path}/first",
        BACKBURNER_APPS="notes,reports",
        NOTES_LONGEST="200",
    )
    found = Environment(tmp_path, settings)
    found.pip(
        "install",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--disable-pip-version-check",
        PLUGINS / "notes",
        PLUGINS / "reports",
    )
    return found


def use(url, text):
    """Write a note and a report, and wait for all that follows."""
    with Client(url) as client, httpx2.Client(base_url=url, timeout=SECONDS) as http:
        http.post("/notes", json={"text": text}).raise_for_status()
        asked = {"title": text, "url": f"{url}/apps/notes/"}
        report = http.post("/reports", json=asked).json()["id"]
        for job in [*client.jobs()]:
            client.wait(job["id"])
        written = next(iter(client.jobs(capability="reports.write")))
        [ended] = client.jobs(tag=f"completion:{written['id']}")
        client.wait(ended["id"])
        assert [200] == [client.result(job["id"]) for job in looks(client)][:1]
        assert {"report:started", "report:ended"} == told(http, "reports", 2)
        return report, http.get("/metrics").text, http.get("/apps/notes/").status_code


def looks(client):
    return client.jobs(capability="reports.check")


def told(http, topic, count):
    """Return the types of the first events of a topic, however late they come."""
    types = set()
    asked = {"topic": topic, "after": 0}
    with http.stream("GET", "/v1/events", params=asked) as answer:
        for line in answer.iter_lines():
            if line.startswith("event:"):
                types.add(line.partition(":")[2].strip())
            if len(types) == count:
                return types
    return types


def seen(url, report):
    """Return what the routes show: the notes with a word, and a report's text."""
    with httpx2.Client(base_url=url, timeout=SECONDS) as http:
        notes = http.get("/notes", params={"q": "plants"}).json()
        return notes, http.get(f"/reports/{report}").text


async def rows_of(url):
    """Return the rows of the applications' tables, as both databases have them."""
    store = a_store(url)

    def body(connection):
        found = {}
        for name in OWN:
            table = sa.Table(name, sa.MetaData(), autoload_with=connection)
            query = sa.select(table).order_by(table.c.id)
            found[name] = [dict(row) for row in connection.execute(query).mappings()]
        return found

    try:
        return await read(store, body)
    finally:
        await store.close()


async def test_plugins_run_move_both_ways_and_are_uninstalled(
    environment, tmp_path, postgres_url
):
    second, third = (
        {"BACKBURNER_STORE": store, "BACKBURNER_BLOBS": f"file://{tmp_path}/{name}"}
        for name, store in (("second", postgres_url), ("third", "sqlite:///third.db"))
    )
    with environment.serving() as url:
        report, metrics, page = use(url, "water the plants")
        before = seen(url, report)
    first_rows = await rows_of(f"sqlite:///{tmp_path}/first.db")
    there = environment.backburner("move", "--to", postgres_url, *to(second))
    second_rows = await rows_of(postgres_url)
    with environment.serving(**second) as url:
        moved = seen(url, report)
        later, *_ = use(url, "two plants")
        grown = seen(url, later)
    rows_before = await rows_of(postgres_url)
    back = environment.backburner(
        "move", "--to", "sqlite:///third.db", *to(third), **second
    )
    rows_after = await rows_of(f"sqlite:///{tmp_path}/third.db")
    with environment.serving(**third) as url:
        again = seen(url, later)
    said = environment.backburner("notes", "settings").stdout

    assert (0, 0) == (there.returncode, back.returncode), there.stderr + back.stderr
    assert "notes_counted_total 1.0" in metrics
    assert (200, "200") == (page, said.strip())
    assert {"items": [{"text": "water the plants", "words": 3}], "total": 1} == before[
        0
    ]
    assert before[1].startswith("water the plants, line 0\n")
    assert before == moved
    assert (2, grown) == (grown[0]["total"], again)
    assert first_rows == second_rows
    assert rows_before == rows_after
    assert [1, 2] == [len(rows["reports_reports"]) for rows in (first_rows, rows_after)]


def test_one_is_uninstalled_and_the_other_one_starts(environment):
    migrated = environment.backburner("migrate")
    environment.pip("uninstall", "--yes", "example-reports")
    only = {"BACKBURNER_APPS": "notes"}
    with environment.serving(**only) as url, httpx2.Client(base_url=url) as http:
        made = http.post("/notes", json={"text": "alone"}, timeout=SECONDS)
        gone = http.post("/reports", json={"title": "none"}, timeout=SECONDS)
    refused = environment.backburner("move", "--to", "sqlite:///x.db", **only)

    assert (0, 5) == (migrated.returncode, refused.returncode)
    assert (200, 404) == (made.status_code, gone.status_code)
    assert "tables of application 'reports', but it is not installed" in refused.stderr


def to(settings):
    return "--blobs-to", settings["BACKBURNER_BLOBS"]
