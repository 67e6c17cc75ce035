"""What reaches a terminal: no control characters, colour only where it is wanted."""

import json
import re

import pytest

from backburner.cli import printing
from backburner.domain.jobs.job import rfc3339

HOSTILE = "\x1b[2Jhallo\r\x9bK\u202e\x00"
JOB = {
    "id": "job_1",
    "capability": HOSTILE,
    "queue": HOSTILE,
    "state": "failed",
    "attempt": 1,
    "max_attempts": 1,
    "progress": None,
    "error": {"code": "BAD", "message": HOSTILE},
    "created_at": "now",
}


def test_what_a_server_sends_cannot_move_the_cursor(run, answering):
    url = answering(200, JOB, "application/json")

    table = run("status", "job_1", "--url", url)
    waited = run("wait", "job_1", "--url", url)

    assert "hallo" in table.stdout
    assert "hallo" in waited.stderr
    assert {"\t", "\n"} >= {ch for ch in table.stdout if not ch.isprintable()}
    assert {"\n"} >= {ch for ch in waited.stderr if not ch.isprintable()}


def test_json_keeps_every_character_and_shows_none_that_is_invisible(run, answering):
    url = answering(200, JOB, "application/json")

    ended = run("status", "job_1", "--url", url, "--json")

    assert JOB == json.loads(ended.stdout)
    assert {"\n"} == {ch for ch in ended.stdout if not ch.isprintable()}


def test_a_refusal_cannot_move_the_cursor_either(run, answering):
    url = answering(404, {"detail": HOSTILE, "code": HOSTILE, "request_id": HOSTILE})

    ended = run("status", "job_1", "--url", url)

    assert 3 == ended.returncode
    assert {"\n"} == {ch for ch in ended.stderr if not ch.isprintable()}


def test_waiting_at_a_terminal_shows_how_far_the_job_is(url, at_a_terminal):
    out, seen = at_a_terminal(
        *("submit", "demo.sleep", '{"seconds": 2}', "--wait"), BACKBURNER_URL=url
    )

    assert {"slept": 2.0} == json.loads(out)
    assert "running" in seen
    assert "%" in seen


def test_a_table_has_headings_at_a_terminal_and_cuts_nothing_off(
    url, client, at_a_terminal
):
    job = client.wait(client.submit("demo.echo", {})["id"])

    _, seen = at_a_terminal("status", job["id"], "--url", url, both=True)
    headings, row = seen.splitlines()

    assert ["ID", "STATE", "CAPABILITY"] == headings.split()[:3]
    assert [job["id"], "succeeded", "demo.echo"] == row.split()[:3]


def test_a_table_wider_than_the_terminal_leaves_out_empty_columns_and_goes_on_below(
    url, client, at_a_terminal
):
    job = client.wait(client.submit("demo.echo", {})["id"])

    _, seen = at_a_terminal("status", job["id"], "--url", url, both=True, COLUMNS="66")
    *lines, last = seen.splitlines()

    assert [
        "ID                                        STATE      CAPABILITY",
        "    QUEUE  ATTEMPT  CREATED",
        f"{job['id']}  succeeded  demo.echo",
    ] == lines
    assert re.fullmatch(r"    demo   1/3      \d+[smh]", last)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (3_599, "59m"),
        (3_600, "1h"),
        (172_799, "1d"),
        (-90, "in 1m"),
    ],
)
def test_a_time_is_shown_by_its_distance(seconds, shown):
    time = 1_900_000_000

    assert shown == printing.relative(rfc3339((time - seconds) * 1000), time)


def test_a_terminal_shows_ages_and_no_queue_that_all_jobs_share(
    answering, at_a_terminal, run
):
    times = ["2001-01-31T09:00:00.000Z", "2999-01-31T09:00:00Z"]
    listed = [{**JOB, "capability": "a", "queue": "q", "created_at": t} for t in times]
    server = answering(200, {"items": listed, "next_cursor": None}, "application/json")

    _, seen = at_a_terminal("jobs", "--url", server, both=True)
    piped = run("jobs", "--url", server)

    (past, future), headings = seen.splitlines()[1:], seen.splitlines()[0].split()
    assert "QUEUE" not in headings
    assert re.search(r"1/1 +\d+d", past)
    assert re.search(r"1/1 +in \d+d", future)
    assert [["q", time] for time in times] == [
        line.split("\t")[3:7:3] for line in piped.stdout.splitlines()
    ]


def test_an_empty_table_at_a_narrow_terminal_has_all_of_its_headings(
    url, at_a_terminal
):
    _, seen = at_a_terminal(
        *("flows", "list", "--tag", "none", "--url", url), both=True, COLUMNS="40"
    )

    assert ["ID  STATE  GENERATION  TAGS  CREATED", "    FINISHED"] == seen.splitlines()


def test_no_color_means_no_colour(at_a_terminal):
    arguments = ("serve", "--host", "0.0.0.0")  # noqa: S104 - it is refused

    _, plain = at_a_terminal(*arguments, NO_COLOR="1")

    assert "backburner: " in plain
    assert "\x1b[3" not in plain
