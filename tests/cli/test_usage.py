"""What jobs use, at the command line and for the clients."""

import json
import shutil
from pathlib import Path

import pytest

from backburner.client import AsyncClient, Client

PRICES = '{"version": "v1", "models": {"fake-1": {"input": 1, "output": 10}}}'


@pytest.fixture
def url(serve, tmp_path):
    shutil.copy(Path(__file__).parent / "apps" / "using.py", tmp_path)
    return serve("--app", "using:app", BACKBURNER_PRICES=PRICES).url


def rows(ended):
    assert 0 == ended.returncode, ended.stderr
    return [line.split("\t") for line in ended.stdout.splitlines()]


def test_usage_is_shown_and_quoted_and_receipted(url, run):
    job = run(
        "submit", "use", "false", "--tag", "t", "--wait", "--json", BACKBURNER_URL=url
    )
    job_id = json.loads(job.stdout)["id"]
    shown = run("status", job_id, BACKBURNER_URL=url)
    added = run("usage", "--by", "tag", BACKBURNER_URL=url)
    told = run("usage", "--since", "1h", "--json", BACKBURNER_URL=url)
    quote = run("quote", "use", "false", BACKBURNER_URL=url)
    quoted = run("quote", "use", "false", "--json", BACKBURNER_URL=url)
    refused = run("usage", "--by", "input", BACKBURNER_URL=url)

    assert ["120", "0.000300"] == rows(shown)[0][7:9]
    assert [
        ["t", "1", "1", "100", "20", "40", "0.000300"],
        ["total", "1", "1", "100", "20", "40", "0.000300"],
    ] == rows(added)
    assert ["fake-1"] == [item["key"] for item in json.loads(told.stdout)["items"]]
    assert [["tokens", "500"], ["cost", "0.005000"], ["jobs ahead", "0"]] == rows(
        quote
    )[:3]
    assert ("v1", 1) == tuple(
        json.loads(quoted.stdout)[name] for name in ("price_version", "samples")
    )
    assert 2 == refused.returncode


def test_calls_without_a_price_are_counted(serve, run, tmp_path):
    shutil.copy(Path(__file__).parent / "apps" / "using.py", tmp_path)
    url = serve("--app", "using:app").url
    run("submit", "use", "false", "--wait", BACKBURNER_URL=url)

    added = run("usage", BACKBURNER_URL=url)

    assert "0.000000, 1 without a price" == rows(added)[-1][-1]


def test_a_cancel_says_what_was_used(url, run):
    with Client(url) as client:
        ticket = client.submit("use", True)
        while client.get(ticket.id).get("usage") is None:
            pass
    cancelled = run("cancel", ticket.id, BACKBURNER_URL=url)
    again = run("cancel", ticket.id, "--json", BACKBURNER_URL=url)

    assert (0, "cancelled\n") == (cancelled.returncode, cancelled.stdout)
    assert "used 120 tokens, cost 0.000300" in cancelled.stderr
    assert "not undone: 1 model calls" in cancelled.stderr
    assert 120 == json.loads(again.stdout)["receipt"]["tokens_used"]


async def test_both_clients_ask_alike(url):
    async with AsyncClient(url) as client:
        await (await client.submit("use", False)).wait(timeout=60)
        quote = await client.quote("use", False, priority=3)
        used = await client.usage(by="capability")
    with Client(url) as blocking:
        again = blocking.quote("use", False, priority=3)
        same = blocking.usage(by="capability")

    assert (500, "0.005000") == (quote["tokens"], quote["cost_usd"])
    assert quote["tokens"] == again["tokens"]
    assert ["use"] == [item["key"] for item in used["items"]]
    assert used["items"] == same["items"]


def test_the_command_line_says_if_there_are_more_rows_than_it_shows(url, run):
    for model in ("fake-1", "fake-2"):
        run("submit", "use", "false", "--tag", model, "--wait", BACKBURNER_URL=url)

    cut = run("usage", "--by", "tag", "--limit", "1", BACKBURNER_URL=url)
    whole = run("usage", "--by", "tag", BACKBURNER_URL=url)

    assert ["fake-1", "total"] == [row[0] for row in rows(cut)]
    assert "2" == rows(cut)[-1][1]
    assert "more rows than --limit" in cut.stderr
    assert "more rows" not in whole.stderr
