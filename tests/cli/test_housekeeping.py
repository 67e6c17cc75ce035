"""`migrate` and `doctor`: they look, they say what to do, they change what they say."""

import json
import sqlite3

import asyncpg
import pytest

from backburner.ports.finding import Status
from backburner.stores.migrations import HEAD
from backburner.stores.postgres import examination

DATABASE = "backburner.db"


def the_findings_of(ended):
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    return {finding["name"]: finding for finding in found}


def test_migrate_brings_a_new_file_to_the_schema_and_check_says_so(run, tmp_path):
    before = run("migrate", "--check")
    was_made = tmp_path.joinpath(DATABASE).exists()
    done = run("migrate", "--json")
    after = run("migrate", "--check")

    assert (9, False) == (before.returncode, was_made)
    assert "run `backburner migrate`" in before.stderr
    assert {"before": None, "after": HEAD, "needed": HEAD} == json.loads(done.stdout)
    assert 0 == after.returncode


def test_a_schema_from_the_future_is_left_alone(run, tmp_path):
    run("migrate")
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("UPDATE backburner_version SET version_num = '9999'")
    connection.close()

    ended = run("migrate")
    examined = run("doctor", "--json")

    assert 2 == ended.returncode
    assert "newer than this release's" in ended.stderr
    assert 9 == examined.returncode
    assert "fail" == the_findings_of(examined)["schema"]["status"]


def test_migrate_names_the_setting_that_cannot_be_used(run):
    ended = run("migrate", "--store", "sqlite:////dev/null/x.db")

    assert 2 == ended.returncode
    assert "--store: " in ended.stderr


def test_a_sound_machine_passes(run, url):
    run("migrate")

    ended = run("doctor", "--json", BACKBURNER_URL=url)
    found = the_findings_of(ended)

    assert 0 == ended.returncode
    assert {"fail"}.isdisjoint({finding["status"] for finding in found.values()})
    assert ("wal", "FULL") == (
        found["journal"]["message"],
        found["synchronous"]["message"],
    )
    assert "pass" == found["write"]["status"]
    assert "pass" == found["server"]["status"]


def test_doctor_changes_nothing_where_there_is_nothing(run, tmp_path):
    ended = run("doctor", "--store", "sqlite:///new/folder/jobs.db")

    assert 0 == ended.returncode
    assert "is created at the first start" in ended.stdout
    assert [] == list(tmp_path.iterdir())


def test_every_failure_comes_with_its_fix(run, tmp_path):
    tmp_path.joinpath(DATABASE).write_text("this is a text, not a database" * 100)

    ended = run("doctor", "--json", BACKBURNER_URL="http://127.0.0.1:1")
    failed = {
        name: finding["fix"]
        for name, finding in the_findings_of(ended).items()
        if finding["status"] == "fail"
    }

    assert 9 == ended.returncode
    assert {"write", "server"} == set(failed)
    assert all(failed.values())


def test_doctor_names_a_wrong_setting_and_a_folder_that_is_none(run):
    wrong = run("doctor", BACKBURNER_SLOTS="none")
    folder = run("doctor", "--store", "sqlite:////dev/null/jobs.db")

    assert (9, 9) == (wrong.returncode, folder.returncode)
    assert "BACKBURNER_SLOTS" in wrong.stdout
    assert "cannot be written" in folder.stdout
    assert "fix: " in folder.stdout


async def test_migrate_brings_an_empty_server_to_the_schema(run, postgres_url):
    before = run("migrate", "--check", "--store", postgres_url)
    done = run("migrate", "--json", "--store", postgres_url)
    after = run("migrate", "--check", BACKBURNER_STORE=postgres_url)

    assert (9, "schema none") == (before.returncode, before.stdout.partition(",")[0])
    assert {"before": None, "after": HEAD, "needed": HEAD} == json.loads(done.stdout)
    assert 0 == after.returncode


async def test_doctor_reads_a_servers_promises_back(run, postgres_url):
    run("migrate", "--store", postgres_url)
    other = await asyncpg.connect(postgres_url)
    async with other.transaction():
        await other.execute("SELECT pg_current_xact_id()")
        pid = other.get_server_pid()

        ended = run("doctor", "--json", "--store", postgres_url)
    await other.close()
    found = the_findings_of(ended)

    assert {
        "server",
        "schema",
        "synchronous_commit",
        "fsync",
        "full_page_writes",
        "autovacuum",
        "clock",
        "connections",
        "transactions",
        "write",
    } < set(found)
    assert HEAD == found["schema"]["message"]
    assert "on" == found["synchronous_commit"]["message"]
    assert "pass" == found["write"]["status"]
    assert f"pid {pid}," in found["transactions"]["message"]


async def test_doctor_reads_what_this_database_has_for_itself(run, postgres_url):
    run("migrate", "--store", postgres_url)
    name = postgres_url.rpartition("/")[2]
    admin = await asyncpg.connect(postgres_url)
    await admin.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    try:
        ended = run("doctor", "--json", "--store", postgres_url)
    finally:
        await admin.execute(f'ALTER DATABASE "{name}" RESET synchronous_commit')
        await admin.close()

    finding = the_findings_of(ended)["synchronous_commit"]
    assert 9 == ended.returncode
    assert ("fail", "off") == (finding["status"], finding["message"])
    assert "could be lost" in finding["fix"]


def test_doctor_says_that_a_server_is_away(run):
    ended = run("doctor", "--json", "--store", "postgresql://127.0.0.1:1/none")

    assert 9 == ended.returncode
    assert "fail" == the_findings_of(ended)["database"]["status"]
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("status", "finding"),
    [
        (Status.PASS, examination.transaction(None)),
        (
            Status.PASS,
            examination.transaction(examination.Transaction(7, "psql", "active", 299)),
        ),
        (
            Status.WARN,
            examination.transaction(examination.Transaction(7, "psql", "idle", 301)),
        ),
        (Status.PASS, examination.skew(1_400, 500)),
        (Status.WARN, examination.skew(-1_600, 500)),
        (Status.PASS, examination.connections(examination.PER_PROCESS)),
        (Status.WARN, examination.connections(1)),
        (Status.FAIL, examination.connections(0)),
    ],
)
def test_a_measurement_is_judged(status, finding):
    assert status is finding.status
    assert (status is Status.PASS) == (finding.fix == "")


def test_the_fix_for_an_old_transaction_names_who_holds_it():
    old = examination.Transaction(4711, "psql", "idle in transaction", 900)

    assert "pg_terminate_backend(4711)" in examination.transaction(old).fix


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("server", {"number": 120_018}),
        ("synchronous_commit", {"synchronous_commit": "off"}),
        ("fsync", {"fsync": "off"}),
        ("full_page_writes", {"full_page_writes": "off"}),
        ("autovacuum", {"autovacuum": "off"}),
    ],
)
def test_a_promise_that_a_server_does_not_make_is_named(name, settings):
    sound = examination.Settings("15.3", 150_003, "on", "on", "on", "on")

    bad = [f for f in examination.judged(sound._replace(**settings)) if f.fix]

    assert [] == [f for f in examination.judged(sound) if f.fix]
    assert [name] == [finding.name for finding in bad]


@pytest.mark.parametrize("server", ["rabbitmq_url", "redis_url"])
def test_doctor_asks_the_broker(run, request, server):
    url = request.getfixturevalue(server)
    ended = run("doctor", "--json", BACKBURNER_TRANSPORT=url)

    assert "pass" == the_findings_of(ended)[server.removesuffix("_url")]["status"]


def test_doctor_says_that_a_broker_is_away_or_unknown(run):
    away = run("doctor", "--json", BACKBURNER_TRANSPORT="amqp://me:geheim@127.0.0.1:1/")
    unknown = run("doctor", "--json", BACKBURNER_TRANSPORT="mqtt://127.0.0.1/")
    none = run("doctor", "--json")

    assert [9, 9, 0] == [ended.returncode for ended in (away, unknown, none)]
    assert "127.0.0.1:1" in the_findings_of(away)["broker"]["message"]
    assert "BACKBURNER_TRANSPORT" in the_findings_of(away)["broker"]["fix"]
    assert "geheim" not in away.stdout + away.stderr
    assert "no broker for 'mqtt'" in the_findings_of(unknown)["broker"]["message"]
    assert "pass" == the_findings_of(none)["broker"]["status"]


async def test_doctor_warns_of_contents_that_processes_do_not_share(run, postgres_url):
    asked = ("doctor", "--json", "--store", postgres_url)
    apart = the_findings_of(run(*asked))
    shared = the_findings_of(run(*asked, BACKBURNER_BLOBS="file:///tmp/blobs"))

    assert "warn" == apart["blob folder"]["status"]
    assert (
        "set it to one folder that all processes share" == apart["blob folder"]["fix"]
    )
    assert "blob folder" not in shared
    assert "pass" == shared["blobs"]["status"]
