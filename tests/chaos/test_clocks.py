"""Machines whose clock is wrong, and set while they work."""

import subprocess

import pytest

from tests.chaos.conftest import library

LONG = {"BACKBURNER_LEASE_SECONDS": "20"}
"""So long that nobody loses it because the machine is busy."""


@pytest.fixture
def wrong_clock(tmp_path):
    """Make settings of a process whose clock is off, and may be set while it runs."""
    stands_between = library("libfaketime.so.1", "faketime")

    def make(offset):
        file = tmp_path / f"clock{offset}"
        file.write_text(offset)
        return file, {
            "LD_PRELOAD": stands_between,
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    return make


@pytest.mark.chaos
@pytest.mark.experiment(21)
async def test_clocks_an_hour_off_and_set_on_the_way_rescue_nobody_early(
    fleet, client, gate, wrong_clock, experiment
):
    await fleet.worker(**LONG).ready()
    [held] = await client.submit("work", {"gate": str(gate)})
    await client.seen(held, "job.started")
    ahead, settings = wrong_clock("+3600")
    first = fleet.worker(**settings, **LONG)
    _, settings = wrong_clock("-3600")
    second = fleet.worker(**settings, **LONG)
    await first.ready()
    await second.ready()
    await client.ended(await client.submit("work", *({} for _ in range(60))))
    ahead.write_text("+4200")
    await client.ended(await client.submit("work", {"seconds": 2}))
    gate.unlink()
    ended = await experiment.drain(client)

    crashes = sum(job.crashes for job in ended)
    experiment.found("nobody is rescued early", crashes == 0, crashes=crashes)
    await experiment.judge(client)


def test_the_clock_of_such_a_process_is_really_off_and_can_be_set(wrong_clock):
    file, settings = wrong_clock("+3600")
    show = ["/bin/date", "+%s"]

    right = int(subprocess.check_output(show))
    ahead = int(subprocess.check_output(show, env=settings))
    file.write_text("-3600")
    behind = int(subprocess.check_output(show, env=settings))

    assert 3500 < ahead - right < 3700
    assert 3500 < right - behind < 3700
