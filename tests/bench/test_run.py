"""The benchmark runs: real stores, a real peer, figures that were checked."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from backburner import Backburner
from backburner_apps.chat import app as chat_app
from bench import conversations, deferrals, work
from bench.__main__ import publish
from bench.meter import Expected, NotTrueError, check
from bench.peers import roster
from bench.sentences import check_tasks

PROJECT = Path(__file__).parents[2]
QUICK = ("--jobs", "200", "--reps", "1", "--only", "drain")
FEWEST = 4
FEW = {"BENCH_JOBS": "20", "BENCH_FEWEST": str(FEWEST)}
"""Each row warms up with so many, and measures as many; one of them twice."""
ONE_MEMORY_LESS = sa.text(
    "DELETE FROM chat_memories WHERE id IN (SELECT max(id) FROM chat_memories)"
)
NO_REPLIES = sa.text("UPDATE chat_discord_interactions SET sent = 0")
ONE_TASK_LESS = sa.text(
    "DELETE FROM tasks_tasks WHERE id IN (SELECT max(id) FROM tasks_tasks)"
)


def bench(*words, **env):
    return subprocess.run(
        [sys.executable, "-m", "bench", *QUICK, *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=PROJECT,
        env=env,
        timeout=100,
    )


def test_both_stores_and_a_peer_are_measured_in_one_run(postgres_url, tmp_path):
    out = tmp_path / "figures.json"

    said = bench(
        *("--peers", "huey-sqlite", "--out", out),
        BACKBURNER_TEST_POSTGRES_URL=postgres_url,
    )

    runs = json.loads(out.read_text())["runs"]
    assert ["sqlite drain", "postgres drain", "peer huey-sqlite"] == list(runs)
    assert all(figures[0]["per_second"] > 0 for figures in runs.values())
    assert "Huey" in said.stdout


def test_a_broker_is_measured_with_the_store_behind_it(
    postgres_url, redis_url, tmp_path
):
    out = tmp_path / "figures.json"

    said = bench(
        *("--stores", "none", "--brokers", "redis", "--peers", "none", "--out", out),
        BACKBURNER_TEST_POSTGRES_URL=postgres_url,
        BACKBURNER_TEST_REDIS_URL=redis_url,
    )

    runs = json.loads(out.read_text())["runs"]
    assert ["redis drain"] == list(runs)
    assert runs["redis drain"][0]["per_second"] > 0
    assert "| Redis (goal) |" in said.stdout


def test_a_missing_server_drops_its_rows_with_a_line(tmp_path):
    out = tmp_path / "figures.json"

    said = bench("--peers", "none", "--out", out)

    report = json.loads(out.read_text())
    assert ["sqlite drain"] == list(report["runs"])
    assert {"commit", "date"} < set(report)
    assert "no rows on PostgreSQL" in said.stderr
    assert "no rows on RabbitMQ" in said.stderr


def test_a_peer_without_its_server_says_what_it_lacks(monkeypatch):
    monkeypatch.delenv(roster.REDIS, raising=False)
    peer = roster.Peer("p", "P", "redis", (sys.executable,), 1, (roster.REDIS,))

    assert f"{roster.REDIS} not set" == peer.missing()


def test_a_peer_that_is_not_installed_says_how_to_get_it():
    peer = roster.Peer("p", "P", "redis", ("/nowhere/python",), 1)

    assert "it is not installed (tools/bench-peers)" == peer.missing()


def test_a_peer_that_does_not_store_its_results_has_no_figures(tmp_path):
    program = tmp_path / "forgetful.py"
    program.write_text(FORGETFUL)
    peer = roster.Peer("p", "P", "sqlite", (sys.executable, str(program)), 3)

    with pytest.raises(roster.NotDoneError, match="2 of 3 results were stored"):
        roster.measure(peer, tmp_path, "", 3)


@pytest.mark.usefixtures("aimock")
@pytest.mark.chaos
async def test_sentences_become_tasks_over_real_processes(
    migrated_url, rabbitmq_url, tmp_path
):
    said = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "bench.rows", "sentences", tmp_path],
        stdout=subprocess.PIPE,
        check=True,
        cwd=PROJECT,
        env={
            **FEW,
            "BENCH_STORE": migrated_url,
            "BENCH_TRANSPORT": rabbitmq_url,
        },
        timeout=200,
    )

    figures = json.loads(said.stdout)
    assert figures["per_second"] > 0
    assert 0 < figures["ours_of_cpu"] < 1
    assert 0 < figures["ours_of_time"] < 1
    all_of_them = 3 * FEWEST
    async with Backburner(store=migrated_url) as bb:
        await check_tasks(bb, all_of_them)
        await bb.transact(lambda tx: tx.connection.execute(ONE_TASK_LESS))
        with pytest.raises(NotTrueError):
            await check_tasks(bb, all_of_them)


@pytest.mark.chaos
async def test_messages_are_answered_over_real_processes(tmp_path):
    said = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "bench.rows", "conversations", tmp_path],
        stdout=subprocess.PIPE,
        check=True,
        cwd=PROJECT,
        env=FEW,
        timeout=200,
    )

    assert json.loads(said.stdout)["per_second"] > 0
    all_of_them = 2 * FEWEST
    url = f"sqlite:///{tmp_path}/bench.db"
    async with Backburner(store=url, apps=[chat_app]) as bb:
        await conversations.check_replies(bb, all_of_them)
        await bb.transact(lambda tx: tx.connection.execute(ONE_MEMORY_LESS))
        with pytest.raises(NotTrueError):
            await conversations.check_replies(bb, all_of_them)


@pytest.mark.chaos
async def test_commands_are_deferred_over_real_processes(tmp_path):
    said = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "bench.rows", "deferrals", tmp_path],
        stdout=subprocess.PIPE,
        check=True,
        cwd=PROJECT,
        env=FEW,
        timeout=200,
    )

    assert json.loads(said.stdout)["p99_ms"] > 0
    all_of_them = 2 * FEWEST
    url = f"sqlite:///{tmp_path}/bench.db"
    async with Backburner(store=url, apps=[chat_app]) as bb:
        await deferrals.check_replies(bb, all_of_them)
        await bb.transact(lambda tx: tx.connection.execute(NO_REPLIES))
        with pytest.raises(NotTrueError):
            await deferrals.check_replies(bb, all_of_them)


async def test_a_row_that_the_store_does_not_bear_out_has_no_figures(tmp_path):
    async with Backburner(store=f"sqlite:///{tmp_path}/jobs.db", apps=[work.app]) as bb:
        await bb.submit(work.noop, work.Payload(i=1))

        await check(bb, Expected(jobs=1, succeeded=0, events=1))
        with pytest.raises(NotTrueError):
            await check(bb, Expected(jobs=1, succeeded=1, events=3))


def test_publishing_a_run_rewrites_both_tables_and_keeps_its_figures(tmp_path):
    figures = tmp_path / "figures.json"
    figures.write_text(json.dumps(REPORT))
    (tmp_path / "docs").mkdir()
    pages = [tmp_path / "README.md", tmp_path / "docs" / "benchmarks.md"]
    for page in pages:
        page.write_text("<!-- bench -->\nold\n<!-- /bench -->\n")

    publish(figures, tmp_path)

    for page in pages:
        assert "**12,345**" in page.read_text()
        assert "on 2026-11-16 at commit abcdef" in page.read_text()
        assert "old" not in page.read_text()
    assert REPORT == json.loads((tmp_path / "docs" / "benchmarks.json").read_text())


def test_a_run_that_does_not_exist_is_not_published(tmp_path):
    with pytest.raises(SystemExit, match="run `make bench` first"):
        publish(tmp_path / "figures.json", tmp_path)


REPORT = {
    "commit": "abcdef",
    "date": "2026-11-16",
    "machine": {"cores": 2, "versions": {}},
    "reps": 1,
    "peers": {},
    "runs": {"sqlite drain": [{"per_second": 12_345}]},
}
FORGETFUL = """
import os, sys, time
match sys.argv[1]:
    case "submit":
        print('{"submit_per_second": 1}')
    case "worker":
        for _ in range(3):
            with open(os.environ["BENCH_MARKS"], "a") as marks:
                marks.write(".")
            time.sleep(0.1)
        time.sleep(60)
    case "stored":
        print(2)
"""
