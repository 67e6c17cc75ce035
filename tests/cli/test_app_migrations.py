"""Applications that bring tables: made, adopted, refused, and left when uninstalled."""

import json
import re
import shutil
from pathlib import Path

import httpx2
import pytest
import sqlalchemy as sa

from backburner.adapters import find_store
from backburner.client import Client
from backburner.clock import SystemClock
from backburner.ports.faults import NoFaults
from backburner.testing.broker.acts import pause
from backburner_apps.tasks.tables import metadata, tasks
from tests.cli.conftest import Gate
from tests.cli.plugin import BROKEN, FIRST, SEED, install, revise

DEMO = "backburner.demo:app"
A_TASK = {
    "id": "t1",
    "tenant": "acme",
    "user": "ann",
    "request_id": "r1",
    "status": "TODO",
    "title": "Buy milk",
    "priority": "MEDIUM",
    "natural_language": "buy milk",
    "created_at": 1,
    "updated_at": 1,
}
both_stores = pytest.mark.parametrize(
    "store_url", ["sqlite", "postgres"], indirect=True
)


async def in_the_store(url, body):
    """Run a body in a transaction on a store that nobody opened."""
    store = find_store(url, SystemClock(), NoFaults())
    side = store.side()
    try:
        return await side.transact(body)
    finally:
        await side.close()
        await store.close()


def versions(connection):
    found = sa.text("SELECT version_num FROM backburner_version_shop")
    return [*connection.execute(found).scalars()]


def the_lines_of(ended):
    return [json.loads(line) for line in ended.stdout.splitlines()]


@both_stores
async def test_a_worker_makes_the_tables_when_it_opens_the_store(
    start, tmp_path, store_url
):
    install(tmp_path, FIRST)
    start("worker", "--app", "shop", "--store", store_url).says(
        "runs jobs of these queues: shop"
    )

    assert ["0001"] == await in_the_store(store_url, versions)


@both_stores
async def test_processes_that_migrate_at_once_apply_a_revision_once(
    start, tmp_path, store_url
):
    install(tmp_path, f"{FIRST}; {SEED}")
    given = ("migrate", "--json", "--app", "shop", "--store", store_url)
    started = [start(*given) for _ in range(3)]
    codes = [process.exit_code() for process in started]
    told = [json.loads(process.lines[-1]) for process in started]

    assert [0, 0, 0] == codes
    assert ["0001"] * 3 == [line["after"] for line in told]
    assert ["0001"] == await in_the_store(store_url, versions)
    made = sa.text("SELECT id FROM shop_orders")
    assert ["made"] == await in_the_store(
        store_url, lambda c: [*c.execute(made).scalars()]
    )


def waits_for_a_file(pid):
    """Say whether a process waits for a file that another one has locked."""
    return re.search(rf"-> FLOCK .* {pid} ", Path("/proc/locks").read_text())


async def until_it_waits(process, store_url):
    """Wait until a process waits for another one that migrates the store."""
    if store_url.startswith("postgres"):
        process.says("migration waits for a lock")
        return
    while not waits_for_a_file(process.popen.pid):
        await pause()


@both_stores
async def test_a_process_waits_while_another_one_migrates(start, tmp_path, store_url):
    gate = Gate(tmp_path / "gate")
    install(tmp_path, f"{FIRST}; {SEED}; open({str(gate.path)!r}).read()")
    first = start("migrate", "--json", "--app", "shop", "--store", store_url)
    gate.reached()
    second = start("worker", "--app", "shop", "--store", store_url)
    await until_it_waits(second, store_url)
    gate.opened()
    code = first.exit_code()
    second.says("runs jobs of these queues: shop")

    assert 0 == code, first.lines
    assert ["0001"] == await in_the_store(store_url, versions)


@both_stores
def test_a_failed_migration_stops_its_application_and_nothing_else(
    run, serve, tmp_path, store_url
):
    install(tmp_path, FIRST, BROKEN)
    env = {"BACKBURNER_STORE": store_url, "BACKBURNER_APPS": f"shop,{DEMO}"}
    server = serve(**env)
    with Client(server.url) as client, httpx2.Client(base_url=server.url) as plain:
        waiting = client.submit("shop.order", "one")
        done = client.submit("demo.echo", {"text": "hi"}).wait()
        ready = plain.get("/readyz")
        asked = plain.get("/shop/orders")
        known = plain.post("/livez")
        claimed = plain.get("/v1/workers").json()["items"][0]["queues"]
        state = client.get(waiting["id"])["state"]
    examined = run("doctor", "--json", **env)
    found = {line["name"]: line for line in the_lines_of(examined)}

    assert "succeeded" == done["state"]
    assert (200, ["shop"]) == (ready.status_code, ready.json()["unavailable"])
    assert (503, 405) == (asked.status_code, known.status_code)
    assert "APPLICATION_UNAVAILABLE" == asked.json()["code"]
    assert ("queued", False) == (state, "shop" in claimed)
    assert (9, "fail") == (examined.returncode, found["application shop"]["status"])


@both_stores
def test_a_service_refuses_to_start_until_its_migration_is_corrected(
    run, serve, tmp_path, store_url
):
    package = install(tmp_path, FIRST, BROKEN)
    env = {"BACKBURNER_STORE": store_url}
    refused = run("serve", "shop", "--dev", "--port", "0", **env)
    failed = run("migrate", "--json", "--app", "shop", **env)
    revise(package, 2, "pass")
    migrated = run("migrate", "--json", "--app", "shop", **env)
    server = serve("shop", **env)
    with Client(server.url) as client:
        client.submit("shop.order", "one").wait()
    asked = httpx2.get(f"{server.url}/shop/orders")

    assert (2, 9, 0) == (refused.returncode, failed.returncode, migrated.returncode)
    [line] = [line for line in refused.stderr.splitlines() if "cannot" in line]
    assert "application 'shop' cannot be served: its migration to 0002" in line
    assert "no_such_table" in line
    after = [the_lines_of(ended)[1]["after"] for ended in (failed, migrated)]
    assert "0002" == after[1] != after[0]
    assert "one" == asked.text


@both_stores
async def test_tables_of_an_earlier_release_are_adopted_with_their_rows(run, store_url):
    def as_before(connection):
        metadata.create_all(connection)
        connection.execute(tasks.insert(), A_TASK)

    await in_the_store(store_url, as_before)
    checked = run("migrate", "--check", "--json", "--store", store_url)
    migrated = run("migrate", "--json", "--store", store_url)
    titles = await in_the_store(
        store_url, lambda c: [*c.execute(sa.select(tasks.c.title)).scalars()]
    )

    assert (9, 0) == (checked.returncode, migrated.returncode)
    assert {
        "application": "tasks",
        "before": None,
        "after": "0001",
        "needed": "0001",
        "problem": "",
    } == the_lines_of(migrated)[1]
    assert ["Buy milk"] == titles


def test_an_application_that_was_uninstalled_blocks_nothing(run, serve, tmp_path):
    install(tmp_path, FIRST)
    run("migrate", "--app", "shop")
    shutil.rmtree(tmp_path / "shop")
    shutil.rmtree(tmp_path / "shop-1.dist-info")
    migrated = run("migrate")
    examined = run("doctor", "--json")
    server = serve()
    with Client(server.url) as client:
        done = client.submit("demo.echo", {"text": "hi"}).wait()

    assert 0 == migrated.returncode
    assert "the tables of application 'shop' are left as they are" in migrated.stderr
    found = {line["name"]: line for line in the_lines_of(examined)}
    assert "warn" == found["application shop"]["status"]
    assert "succeeded" == done["state"]


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda package: revise(package, 3, "pass"), "its schema is at 0002, it needs"),
        (
            lambda package: (package / "migrations/versions/0002.py").unlink(),
            "at 0002, which this release of it does not know",
        ),
        (
            lambda package: shutil.copy(
                package / "migrations/versions/0002.py",
                package / "migrations/versions/other.py",
            ).write_text('revision = "other"\ndown_revision: str = "0001"\n'),
            "must have one last revision, it has: 0002, other",
        ),
        (
            lambda package: (package / "migrations/versions/0002.py").write_text("x"),
            "0002.py does not say `revision = …`",
        ),
        (
            lambda package: shutil.rmtree(package / "migrations"),
            "there is no package 'shop.migrations' with a folder `versions`",
        ),
    ],
    ids=["older", "newer", "two heads", "no revision", "no package"],
)
def test_a_history_that_does_not_fit_is_named(run, tmp_path, spoil, told):
    package = install(tmp_path, FIRST, "pass")
    run("migrate", "--app", "shop")
    spoil(package)
    ended = run("migrate", "--check", "--app", "shop")

    assert 9 == ended.returncode
    assert told in ended.stderr
