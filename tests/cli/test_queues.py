import json

import pytest

from backburner.cli import queues
from backburner.clock import SystemClock
from backburner.domain.queues.queue import Queue
from backburner.domain.queues.schedule import ScheduleState
from backburner.ports.faults import NoFaults
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.samples import NOON

NIGHTLY = ScheduleState("nightly", "demo.echo", "0 3 * * *", "UTC", "skip", NOON)


def test_a_queue_is_paused_and_resumed(serve, run):
    url = serve().url

    paused = run("queues", "pause", "demo", BACKBURNER_URL=url)
    shown = run("queues", "list", BACKBURNER_URL=url)
    resumed = run("queues", "resume", "demo", "--json", BACKBURNER_URL=url)

    assert (0, "paused\n") == (paused.returncode, paused.stdout)
    rows = [line.split("\t") for line in shown.stdout.splitlines()]
    assert ["demo", "paused", "0", "0", "0", "0", "", "", "", "0", "0", ""] in rows
    assert (0, False) == (resumed.returncode, json.loads(resumed.stdout)["paused"])


def test_queues_are_listed_as_json(ask):
    listed = ask("queues", "list", "--json")

    assert 0 == listed.returncode
    names = [json.loads(line)["name"] for line in listed.stdout.splitlines()]
    assert ["backburner.bulk", "backburner.deliveries", "demo"] == names


def test_a_queue_that_nobody_knows_cannot_be_paused(ask):
    paused = ask("queues", "pause", "unheard-of")

    assert 3 == paused.returncode
    assert "QUEUE_NOT_FOUND" in paused.stderr


@pytest.mark.parametrize(
    ("keep", "text"),
    [
        ((604_800, 1_209_600, None, None), "7d, 14d"),
        ((36_000, None, 10, 50), "10h / 10, * / 50"),
        ((90, 0.5, None, None), "90s, 0.5s"),
    ],
)
def test_retention_is_shown_as_options_take_it(keep, text):
    names = ("succeeded_seconds", "failed_seconds", "succeeded_count", "failed_count")
    queue = {"keep": dict(zip(names, keep, strict=True))}

    assert text == queues._kept(queue)


async def test_schedules_are_listed(serve, run, tmp_path):
    url = serve(BACKBURNER_STORE=f"sqlite:///{tmp_path}/jobs.db").url
    store = SqliteStore.from_url(
        f"sqlite:///{tmp_path}/jobs.db", SystemClock(), NoFaults()
    )
    await store.open()
    await store.plan([NIGHTLY])
    await store.close()

    shown = run("schedules", BACKBURNER_URL=url)
    listed = run("schedules", "list", BACKBURNER_URL=url)
    told = run("schedules", "--json", BACKBURNER_URL=url)

    assert listed.stdout == shown.stdout
    noon = "2026-01-01T12:00:00.000Z"
    assert (
        f"nightly\tdemo.echo\t0 3 * * *\tUTC\tskip\t{noon}\t\tactive\n" == shown.stdout
    )
    assert "nightly" == json.loads(told.stdout)["name"]


async def test_a_job_too_many_is_refused_and_told_so(serve, run, tmp_path):
    url = serve(BACKBURNER_STORE=f"sqlite:///{tmp_path}/jobs.db").url
    store = SqliteStore.from_url(
        f"sqlite:///{tmp_path}/jobs.db", SystemClock(), NoFaults()
    )
    await store.open()
    await store.declare([Queue("demo", waiting=1)])
    await store.pause("demo", paused=True)
    await store.close()

    asked = ("submit", "demo.echo", "{}", "--tokens", "700", "--share", "night")
    first = run(*asked, BACKBURNER_URL=url)
    second = run(*asked, BACKBURNER_URL=url)

    assert 0 == first.returncode
    assert 6 == second.returncode
    assert "TOO_MANY_WAITING" in second.stderr
