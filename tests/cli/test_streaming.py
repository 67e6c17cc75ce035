"""Streamed text in the clients and at the command line, from real servers."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from backburner.client import AsyncClient, Client, Piece
from tests.cli.screen import shown

APP = ("--app", "drafting:app")
DRAFT = [Piece("a draft\n"), Piece("the text,", is_reset=True)]
RESULT = "the text, to its end\x1b"
ANEW = "the job started again"


@pytest.fixture
def server(gate, serve, start, tmp_path):
    """A server, a worker apart that outlives it, and the gate before `draft`."""
    shutil.copy(Path(__file__).parent / "apps" / "drafting.py", tmp_path)
    served = serve("--no-worker", *APP)
    served.gate = gate
    start("worker", *APP)
    return served


def restarted(server, serve):
    server.told(signal.SIGKILL).exit_code()
    serve("--no-worker", *APP, "--port", server.port)


def test_a_text_goes_on_when_its_server_was_killed_and_started(server, serve):
    with Client(server.url) as client:
        ticket = client.submit("draft", True)
        following = ticket.pieces()
        seen = [next(following) for _ in DRAFT]
        restarted(server, serve)
        server.gate.reached()
        server.gate.opened()
        seen += following
        text, result = ticket.text(), ticket.result()

    assert [*DRAFT, Piece(" to its end\x1b")] == seen
    assert RESULT == text == result


async def test_an_awaited_text_goes_on_when_its_server_was_killed_and_started(
    server, serve
):
    async with AsyncClient(server.url) as client:
        ticket = await client.submit("draft", True)
        following = ticket.pieces()
        seen = [await anext(following) for _ in DRAFT]
        restarted(server, serve)
        server.gate.reached()
        server.gate.opened()
        seen += [piece async for piece in following]
        text, result = await ticket.text(), await ticket.result()

    assert [*DRAFT, Piece(" to its end\x1b")] == seen
    assert RESULT == text == result


def test_watch_prints_the_text_alone_and_says_when_it_begins_anew(server, run):
    with Client(server.url) as client:
        job = client.submit("draft", False)["id"]

    ended = run("watch", job, "--text", "--url", server.url)
    lines = run("watch", job, "--url", server.url)

    assert (0, "a draft\n\nthe text, to its end \n") == (ended.returncode, ended.stdout)
    assert 1 == ended.stderr.count(ANEW)
    assert 2 <= lines.stdout.count("job.output.delta")
    assert len(lines.stdout.splitlines()) == lines.stdout.count("Z  job.")


@pytest.mark.parametrize("words", [(), ("job_1", "--json")])
def test_text_alone_is_of_one_job_and_no_json(run, words):
    assert 2 == run("watch", *words, "--text").returncode


def test_submit_prints_the_text_as_it_comes_at_a_terminal(server, at_a_terminal):
    _, seen = at_a_terminal(
        *("submit", "draft", "false", "--wait", "--url", server.url), both=True
    )

    assert [
        "a draft",
        "",
        "backburner: the job started again; the text so far is no longer valid",
        "the text, to its end",
        "",
    ] == shown(seen)


def test_submit_keeps_the_streamed_text_on_the_screen(url, at_a_terminal):
    said = '{"text": "one two three four", "seconds": 2}'
    _, seen = at_a_terminal(
        *("submit", "demo.write", said, "--wait", "--url", url), both=True
    )

    assert ["one two three four", ""] == shown(seen)


def test_submit_elsewhere_prints_the_result_alone(server, run):
    ended = run("submit", "draft", "false", "--wait", "--url", server.url)

    assert RESULT == json.loads(ended.stdout)
    assert 1 == len(ended.stdout.splitlines())


def test_what_ends_without_text_is_printed_as_ever_at_a_terminal(url, at_a_terminal):
    _, seen = at_a_terminal(
        *("submit", "demo.sleep", '{"seconds": 1}', "--wait", "--url", url), both=True
    )

    assert '"slept": 1.0' in seen
    assert "%" in seen
