"""`migrate` and `doctor`: they look, they say what to do, they change what they say."""

import json
import sqlite3

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
    assert {"before": None, "after": "0001", "needed": "0001"} == json.loads(
        done.stdout
    )
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
    assert "BACKBURNER_STORE" in ended.stderr


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
    assert "is made at the first start" in ended.stdout
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
