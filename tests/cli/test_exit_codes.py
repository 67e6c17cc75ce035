"""What scripts rely on: how a command ends, and one clear line why."""

import re
import signal
from pathlib import Path

import pytest

from backburner.cli.exits import Exit

NOWHERE = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("code", "arguments", "reason"),
    [
        (0, ["submit", "demo.echo", '{"a": 1}'], ""),
        (0, ["submit", "demo.echo", '{"a": 1}', "--wait"], ""),
        (1, ["submit", "demo.fail", '{"error": "permanent"}', "--wait"], "PERMANENT"),
        (2, ["submit", "demo.echo", "{"], "the input is not JSON"),
        (2, ["submit", "demo.echo", "yes"], """Put text in quotes: '"yes"'"""),
        (2, ["jobs", "--state", "done"], "query.state: must be some of"),
        (2, ["submit", "demo.echo", '{"a": NaN}'], "NaN is not a JSON value"),
        (2, ["submit", "demo.echo", "[" * 100_000], "the input is not JSON"),
        (2, ["submit", "demo.echo", '{"a": "\\ud800"}'], "is not valid JSON"),
        (2, ["submit", "demo.echo", "{}", "--file", "f"], "either INPUT or --file"),
        (
            2,
            ["submit", "demo.echo", "--file", "none.json"],
            "--file: none.json does not exist",
        ),
        (2, ["flows", "submit", "none.json"], "FILE: none.json does not exist"),
        (2, ["flows", "submit", "none.json", "--timeout", "3"], "needs --wait"),
        (2, ["submit", "demo.echo", "--timeout", "3"], "--timeout needs --wait"),
        (2, ["submit", "demo.echo", "--metadata", "x"], "--metadata: write NAME=TEXT"),
        (2, ["jobs", "--since", "yesterday"], "write 2h, 1d or 2030-01-31T09:00:00Z"),
        (2, ["submit", "demo.sleep", '{"seconds": -1}'], "input.seconds"),
        (2, ["submit", "demo.echo", "--priority", "10"], "priority"),
        (2, ["submit", "demo.echo", "--delay", "soon"], "write 30s, 5m, 2h or 1d"),
        (2, ["submit", "demo.echo", "--run-at", "2030-01-31T09:00:00"], "time zone"),
        (2, ["submit", "demo.echo", "--key", "é"], "cannot be sent"),
        (2, ["submit", "demo.echo", "--key", "k", "--delay", "1s"], "--run-at"),
        (2, ["jobs", "--state", "dead"], "state"),
        (2, ["jobs", "--no-such-option"], "No such option"),
        (2, ["dead-letters", "retry"], "either one ID or --all"),
        (3, ["status", "job_none"], "job_none: the job does not exist"),
        (3, ["dead-letters", "show", "0a1b2c"], "`backburner dead-letters list` shows"),
        (
            2,
            ["dead-letters", "retry", "0a1b2c"],
            "`backburner dead-letters retry --all --fingerprint 0a1b2c`",
        ),
        (3, ["wait", "job_none"], "the job does not exist"),
        (3, ["watch", "job_none"], "the job does not exist"),
        (3, ["result", "../../readyz"], "NOT_FOUND"),
        (3, ["submit", "demo.ecko"], "did you mean 'demo.echo'"),
        (7, ["jobs", "--url", NOWHERE], "backburner serve --dev"),
        (2, ["jobs", "--url", "no such thing"], "write http://127.0.0.1:8765"),
        (2, ["jobs", "--url", "http://"], "write http://127.0.0.1:8765"),
        (2, ["jobs", "--url", "ftp://here"], "write http://127.0.0.1:8765"),
        (2, ["jobs", "--url", "localhost:8765"], "write http://localhost:8765"),
        (
            2,
            ["jobs", "--url", "http://localhost:8765/v1/"],
            "write the URL without /v1: http://localhost:8765\n",
        ),
        (
            8,
            ["submit", "demo.sleep", '{"seconds": 60}', "--wait", "--timeout", "0"],
            "continues",
        ),
    ],
)
def test_a_command_ends_with_its_code_and_says_why(ask, code, arguments, reason):
    ended = ask(*arguments)

    assert code == ended.returncode
    assert reason in ended.stderr
    assert "Traceback" not in ended.stderr


def test_another_body_under_the_same_key_is_a_conflict(ask):
    first = ask("submit", "demo.echo", '{"a": 1}', "--key", "conflict")
    again = ask("submit", "demo.echo", '{"a": 1}', "--key", "conflict")
    other = ask("submit", "demo.echo", '{"a": 2}', "--key", "conflict")

    assert first.stdout == again.stdout
    assert 5 == other.returncode
    assert "IDEMPOTENCY_CONFLICT" in other.stderr


def test_cancelling_what_has_ended_is_a_conflict(ask, client):
    job = client.wait(client.submit("demo.echo", {})["id"])

    ended = ask("cancel", job["id"])

    assert 5 == ended.returncode
    assert "it cannot be cancelled" in ended.stderr


@pytest.mark.parametrize(
    ("code", "status", "problem"),
    [
        (4, 401, {"detail": "give a key", "code": "UNAUTHORIZED"}),
        (4, 403, {"detail": "not yours", "code": "FORBIDDEN"}),
        (2, 499, {"detail": "no such status", "code": "STRANGE"}),
        (6, 429, {"detail": "too many", "code": "RATE_LIMITED"}),
        (7, 503, {"detail": "the database is away", "code": "STORE_UNAVAILABLE"}),
        (7, 507, {"detail": "no room left", "code": "STORE_FULL"}),
    ],
)
def test_a_refusal_of_the_server_is_passed_on(run, answering, code, status, problem):
    url = answering(status, {**problem, "request_id": "r-1"})

    ended = run("submit", "demo.echo", "--url", url)

    assert code == ended.returncode
    assert f"{problem['detail']} [{problem['code']}, request r-1]" in ended.stderr
    assert (401 == status) == ("set BACKBURNER_API_KEY" in ended.stderr)


def test_only_a_server_that_may_be_down_is_asked_to_be_started(run, url):
    secure = run("jobs", "--url", url.replace("http:", "https:"))
    unknown = run("jobs", "--url", "http://nohost.invalid:1")
    away = run("jobs", "--url", NOWHERE)

    assert [7] * 3 == [ended.returncode for ended in (secure, unknown, away)]
    assert "; the server speaks plain HTTP: write http://\n" in secure.stderr
    assert [False, False, True] == [
        "is it running?" in ended.stderr for ended in (secure, unknown, away)
    ]


@pytest.mark.executed
def test_an_answer_that_is_not_json_is_named(run, answering):
    url = answering(200, b"<html>", "text/html")

    ended = run("status", "job_1", "--url", url)

    assert 7 == ended.returncode
    assert "is it Backburner?" in ended.stderr


@pytest.mark.executed
def test_interrupting_a_watch_leaves_the_job_alone(url, client, start):
    job = client.submit("demo.sleep", {"seconds": 60})
    watching = start("watch", job["id"], BACKBURNER_URL=url)
    watching.says("job.started")

    code = watching.told(signal.SIGINT).exit_code()

    assert 130 == code
    assert "running" == client.get(job["id"])["state"]
    assert "Traceback" not in "".join(watching.lines)


def test_every_exit_code_is_in_the_guide():
    guide = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
    documented = re.findall(r"^\| (\d+) \|", guide, re.MULTILINE)

    # A process that a test kills is no answer of a command.
    assert sorted(set(Exit) - {Exit.KILLED}) == sorted(map(int, documented))
