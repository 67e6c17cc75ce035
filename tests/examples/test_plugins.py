"""
The example plug-ins, installed with pip into an environment of their own.

They use each feature of the application platform on SQLite and PostgreSQL, their rows
and blobs survive a move in both directions, and when one is uninstalled the other one
starts. It is one test, as an installation and each process cost seconds.
"""

import http.server
import json
import re
import threading
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

from backburner import AppBlobs, Http, Settings
from backburner.domain.auth.access import possible
from backburner.engine.access.keys import Actor, NewKey
from backburner.stores.tables import jobs
from backburner.wiring import open_keys
from tests.cli.conftest import the_environment
from tests.examples.browser import browsing
from tests.examples.installed import PLUGINS, Environment
from tests.examples.visitor import CONTENT, PAGE, anonymous, visiting
from tests.store.moving import a_store, read, write

pytestmark = pytest.mark.thorough

OWN = ("notes_notes", "reports_reports", "app_blobs")
SECRET = "a secret of the plug-ins' test and of nobody else"  # noqa: S105
TITLE = "water the plants"
CORRECTED = "[[mock: nonsense once]]"
"""Has the mock model answer what cannot be used, the first time that it is asked."""
CORRECTIONS = 'reports_corrected_total{code="AI_INVALID_JSON"}'
PROBED = ("worker", "--metrics-port", "0")
ADD_A_NOTE = """
new Promise(resolve => {
  const told = () => resolve([
    document.querySelector("li").textContent, document.cookie])
  new MutationObserver(told).observe(document.querySelector("ol"), {childList: true})
  const form = document.querySelector("form")
  form.key.value = %s
  form.text.value = "by a browser"
  form.requestSubmit()
})
"""
"""Logs in to the page of `notes`; what it shows of the note, and what of the cookie."""
CODE = re.compile("`([^`]+)`")
NO_CALLS = {"app", "owner", "patch"}
"""Attributes of `AppBlobs` that say whose they are; what is `post` by another name."""
DAY_MS = timedelta(days=1) // timedelta(milliseconds=1)


@pytest.fixture
def outside():
    """A server that is not ours; what was posted to it is in `posted`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"a page")

        def do_POST(self):
            length = int(self.headers["Content-Length"])
            server.posted.append(json.loads(self.rfile.read(length)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.posted = []
    server.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def places(tmp_path, postgres_url):
    """The settings of the three stores, in the order in which they are moved to."""
    stores = ("sqlite:///first.db", postgres_url, "sqlite:///third.db")
    return [
        {"BACKBURNER_STORE": store, "BACKBURNER_BLOBS": f"file://{tmp_path}/{number}"}
        for number, store in enumerate(stores)
    ]


@pytest.fixture
def environment(tmp_path, places, outside):
    settings = the_environment(
        **places[0],
        BACKBURNER_APPS="notes,reports",
        BACKBURNER_KEY_PEPPER=SECRET,
        BACKBURNER_WEBHOOK_SECRET=SECRET,
        BACKBURNER_LINK_SECRET=SECRET,
        BACKBURNER_WEBHOOK_ALLOW=f"127.0.0.1:{outside.server_port}",
        BACKBURNER_CORS_ORIGINS=PAGE,
        BACKBURNER_COOKIE_SECURE="false",
        BACKBURNER_AI_TEXT="mock",
        NOTES_LONGEST="200",
    )
    environment = Environment(tmp_path, settings)
    environment.install("notes", "reports")
    return environment


async def a_key(store):
    """Make an API key; it moves with the store."""
    async with open_keys(Settings(store=store, key_pepper=SECRET)) as keys:
        wanted = NewKey("a visitor", possible("default", None))
        return (await keys.create(wanted, Actor("test", "default")))[1]


def use(visitor, title, outside):
    """Use each feature once, and assert what it does; return a report's ids."""
    note, batch, members = visitor.write_notes(title)
    report, job = visitor.write_report(f"{title} {CORRECTED}", outside.url)
    visitor.heard("notes", {"note:counted", "notes:imported"}, (note, batch))
    visitor.followed("reports", {"report:started", "report:ended"}, (report, job))
    lines = visitor.lines(report)
    first, second = visitor.send_files()

    assert {"succeeded": 3} == members  # the file, and a job for each of its lines
    assert visitor.text(f"/reports/{report}") == "".join(
        line["text"] + "\n" for line in lines
    )
    assert CONTENT == visitor.get_file(first) == visitor.get_file(second)
    visitor.ask("DELETE", f"/reports/files/{first}")
    files = [blob["id"] for blob in visitor.ask("GET", "/reports/files")["items"]]
    assert (True, False) == (second in files, first in files)
    assert (403, 200) == visitor.browse(f"{title} by cookie")
    visitor.settle()
    return report, job, second


def seen(visitor, report, blob):
    """Return what the routes show: notes with a word, a report's text, a file."""
    notes = visitor.ask("GET", "/notes", params={"q": "plants", "limit": 3})
    return notes, visitor.text(f"/reports/{report}"), visitor.get_file(blob)


async def in_store(url, call, body):
    store = a_store(url)
    try:
        return await call(store, body)
    finally:
        await store.close()


async def rows_of(url):
    """Return the rows of the applications' tables, as both databases have them."""

    def body(connection):
        found = {}
        for name in OWN:
            table = sa.Table(name, sa.MetaData(), autoload_with=connection)
            query = sa.select(table).order_by(table.c.id)
            found[name] = [dict(row) for row in connection.execute(query).mappings()]
        return found

    return await in_store(url, read, body)


async def age(url, job, days):
    """Have a job have ended some days earlier."""
    ended = jobs.c.finished_at - days * DAY_MS
    change = jobs.update().where(jobs.c.id == job).values(finished_at=ended)
    await in_store(url, write, lambda connection: connection.execute(change))


class Left(NamedTuple):
    """What one store leaves to the next one."""

    report: str
    job: str
    blob: str
    shown: Any
    queue: Any


def left(visitor, title, outside):
    """Use each feature; return what has to survive a move."""
    report, job, blob = use(visitor, title, outside)
    shown = seen(visitor, report, blob)
    return Left(report, job, blob, shown, visitor.queue("reports"))


def metric(text, name):
    """Return the value of a metric; a job that ran again counts again."""
    [line] = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[-1])


def run_in_one_process(environment, key, outside, folder):
    """Serve and work in one process, also for a browser; return what is left."""
    with environment.serving() as server, visiting(server.url, key) as visitor:
        kept = left(visitor, TITLE, outside)
        metrics = visitor.text("/metrics")
        with browsing(folder) as tab:
            tab.open(f"{server.url}/apps/notes/")
            shown = tab.run(ADD_A_NOTE % json.dumps(key))
    notes = kept.shown[0]

    # Two notes of an imported file; the first page has at least one of them.
    imported = [
        {"text": f"{TITLE} {often}", "words": 4} for often in ("twice", "thrice")
    ]
    assert any(note in notes["items"] for note in imported)
    assert (4, 3) == (notes["total"], len(notes["items"]))
    assert 4 <= metric(metrics, "notes_counted_total")
    assert 1 <= metric(metrics, CORRECTIONS)
    assert ["3 words", ""] == shown
    assert any("noteWords" in line for line in server.lines), server.lines
    return kept


def run_in_two_processes(environment, key, outside, before, place):
    """Serve in one process and work in another one, after a move."""
    with (
        environment.serving("--no-worker", **place) as server,
        environment.running(*PROBED, says="Metrics and health", **place) as worker,
        visiting(server.url, key) as visitor,
        anonymous(base_url=worker.url) as probe,
    ):
        assert before.shown == seen(visitor, before.report, before.blob)
        kept = left(visitor, "two plants", outside)
        probes = [probe.get(path) for path in ("/livez", "/readyz", "/metrics")]
    keep = kept.queue["keep"]

    assert [200, 200, 200] == [answered.status_code for answered in probes]
    assert 1 <= metric(probes[-1].text, CORRECTIONS)
    assert (86_400, 1_000) == (keep["succeeded_seconds"], keep["succeeded_count"])
    return kept


async def forget(environment, key, before, url, place):
    """Let the queue's retention delete a job, then erase the user."""
    await age(url, before.job, days=2)
    with environment.serving(**place) as server, visiting(server.url, key) as visitor:
        server.says("jobs pruned")
        assert 404 == visitor.status(f"/v1/jobs/{before.job}")
        totals = visitor.queue("reports")["totals"]
        assert before.queue["totals"]["completed"] <= totals["completed"]
        assert before.shown == seen(visitor, before.report, before.blob)
    erased = environment.run("users", "erase", "default", "1", "--yes", **place)

    assert 0 == erased.returncode, erased.stderr
    assert {name: [] for name in OWN} == await rows_of(url)


def run_the_other_one(environment, key, place):
    """Uninstall one application: the other one starts, and a move refuses."""
    environment.uninstall("example-reports")
    only = {**place, "BACKBURNER_APPS": "notes"}
    with environment.serving(**only) as server, visiting(server.url, key) as visitor:
        visitor.ask("POST", "/notes", json={"text": "alone"})
        assert 404 == visitor.status("/reports/files")
    refused = environment.run("move", "--to", "sqlite:///x.db", **only)

    assert 5 == refused.returncode
    assert "tables of application 'reports', but it is not installed" in refused.stderr


async def moved(environment, source, target, place, **settings):
    """Move a store and its blobs; return the applications' rows, which are the same."""
    rows = await rows_of(source)
    blobs = place["BACKBURNER_BLOBS"]
    target_store = place["BACKBURNER_STORE"]
    ended = environment.run(
        "move", "--to", target_store, "--blobs-to", blobs, **settings
    )

    assert 0 == ended.returncode, ended.stderr
    assert rows == await rows_of(target)
    return rows


async def test_plugins_use_each_feature_move_both_ways_and_are_uninstalled(
    environment, places, outside, tmp_path, postgres_url
):
    first, third = (f"sqlite:///{tmp_path}/{name}.db" for name in ("first", "third"))
    key = await a_key(first)
    command = environment.run("notes", "settings")
    doctor = environment.run("doctor", "--json")

    kept = run_in_one_process(environment, key, outside, tmp_path / "tab")
    rows = await moved(environment, first, postgres_url, places[1])
    kept = run_in_two_processes(environment, key, outside, kept, places[1])
    more = await moved(environment, postgres_url, third, places[2], **places[1])
    await forget(environment, key, kept, third, places[2])
    run_the_other_one(environment, key, places[2])

    assert "200\n" == command.stdout, command.stderr
    assert "NOTES_LONGEST=200" in doctor.stdout
    assert [1, 2] == [len(found["reports_reports"]) for found in (rows, more)]
    assert {"succeeded"} == {row["state"] for row in more["reports_reports"]}
    told = {(report["id"], report["state"]) for report in outside.posted}
    assert told == {(row["id"], row["state"]) for row in more["reports_reports"]}


def features():
    """Return the rows of the guide's table: names in code, and files with them."""
    guide = (PLUGINS / "README.md").read_text()
    rows = [line.split("|")[1:-1] for line in guide.splitlines() if "|" in line]
    return [
        (number.strip(), [*CODE.findall(names)], [*CODE.findall(files)])
        for number, names, files in rows
        if number.strip().isdigit()
    ]


def test_each_feature_is_where_the_guide_says():
    for number, names, files in features():
        text = "".join((PLUGINS / file).read_text() for file in files)
        missing = [name for name in names if name not in text]
        assert [] == missing, f"feature {number}: not in {files}"


def test_the_guide_has_every_name_that_applications_use():
    named = {name for _, names, _ in features() for name in names}
    methods = [
        *(name for kind in (AppBlobs, Http) for name in dir(kind)),
        *("publish", "submit", "submit_flow", "open_batch", "add_to_batch"),
        *("multipart", "offset_page", "read", "streamed", "wait", "ServerEvents"),
    ]
    public = {name for name in methods if not name.startswith("_")} - NO_CALLS
    said = {name.rpartition(".")[2].partition("(")[0] for name in named}

    uncoded = {"11", "12", "14"}
    assert {str(n) for n in range(1, 16)} - uncoded == {n for n, *_ in features()}
    assert public - said == set()
