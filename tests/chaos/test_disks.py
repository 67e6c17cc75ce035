"""Disks that are full or cannot sync, and processes out of descriptors."""

import asyncio
import resource
import subprocess
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.chaos.conftest import library
from tests.faults.conftest import cannot

REFUSED = {503, 507}


def whole(tx):
    return tx.connection.exec_driver_sql("PRAGMA integrity_check").scalar()


async def judge_file(experiment, client):
    said = await client.store.transact(whole)
    experiment.found("the file is whole", said == "ok", said=said)
    await experiment.judge(client)


@pytest.fixture
def small_disk():
    """A disk of 16 MB."""
    folder = Path(tempfile.mkdtemp(prefix="backburner-disk-"))
    mount = ["/bin/mount", "-t", "tmpfs", "-o", "size=16m", "none", folder]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        folder.rmdir()
        cannot(f"a small disk cannot be mounted: {done.stderr.strip()}")
    yield folder
    subprocess.run(["/bin/umount", "--lazy", folder], check=True)
    folder.rmdir()


def fill(folder):
    """Leave no room at all; return the file to delete."""
    ballast = folder / "ballast"
    size = 1 << 20
    with ballast.open("wb", buffering=0) as file:
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    return ballast


class TestAFullDisk:
    @pytest.fixture
    def store_url(self, small_disk):
        return f"sqlite:///{small_disk}/jobs.db"

    @pytest.mark.experiment(14)
    async def test_refuses_what_has_no_room_and_all_goes_on_when_there_is(
        self, fleet, client, submitter, small_disk, experiment
    ):
        experiment.on("sqlite")
        submit = await submitter(await fleet.serve().ready())
        await submit.submit(20, size=8_000)
        ballast = await asyncio.to_thread(fill, small_disk)
        await submit.until(REFUSED, size=30_000)
        await submit.submit(20, size=30_000)
        ballast.unlink()
        await submit.until({202})
        await submit.submit(20)
        await experiment.drain(client)

        seen = sorted(set(submit.statuses))
        experiment.found("202 or refused", {*seen} <= {202, *REFUSED}, seen=seen)
        await judge_file(experiment, client)


class TestADiskThatCannotSync:
    """`libfiu` has the system call say EIO."""

    FAULT = "posix/io/sync/fdatasync"

    @pytest.fixture
    def store_url(self, tmp_path):
        return f"sqlite:///{tmp_path}/jobs.db"

    @pytest.fixture
    def breakable_disk(self, tmp_path):
        """Make settings of a process, and what breaks and mends its disk."""
        control = library("fiu_run_preload.so", "fiu-utils")
        between = library("fiu_posix_preload.so", "fiu-utils")
        settings = {
            "LD_PRELOAD": f"{control} {between}",
            "FIU_CTRL_FIFO": str(tmp_path / "fiu"),
        }

        def tell(process, command):
            with Path(f"{tmp_path}/fiu-{process.pid}.in").open("w") as pipe:
                pipe.write(f"{command}\n")
            with Path(f"{tmp_path}/fiu-{process.pid}.out").open() as pipe:
                assert "0" == pipe.readline().strip()

        return settings, tell

    async def submit_to_a_broken_disk(self, module, fleet, submitter, breakable_disk):
        settings, tell = breakable_disk
        process = await fleet.serve(module, "--no-worker", **settings).ready()
        submit = await submitter(process)
        await submit.submit(5)
        await asyncio.to_thread(tell, process, f"enable name={self.FAULT},failinfo=5")
        await submit.submit(10)
        broken = submit.statuses[5:]
        await asyncio.to_thread(tell, process, f"disable name={self.FAULT}")
        return submit, broken

    @pytest.mark.experiment(34)
    async def test_promises_nothing_and_goes_on_when_it_can(
        self, fleet, client, submitter, breakable_disk, experiment
    ):
        experiment.on("sqlite")
        submit, broken = await self.submit_to_a_broken_disk(
            "breakable", fleet, submitter, breakable_disk
        )
        await submit.until({202})
        await fleet.worker().ready()
        await experiment.drain(client)

        seen = sorted(set(broken))
        experiment.found("nothing is promised", {*seen} <= REFUSED, seen=seen)
        await judge_file(experiment, client)

    @pytest.mark.experiment(34)
    async def test_is_not_noticed_by_an_instance_that_does_not_wait_for_it(
        self, fleet, client, submitter, breakable_disk
    ):
        _, broken = await self.submit_to_a_broken_disk(
            "without_sync", fleet, submitter, breakable_disk
        )

        assert {202} == set(broken)
        assert client.ledger.acknowledged


class TestFewDescriptors:
    FEW = 8

    @pytest.mark.chaos
    @pytest.mark.experiment(33)
    async def test_keep_callers_waiting_and_break_nothing(
        self, fleet, client, submitter, experiment, eventually
    ):
        process = await fleet.serve().ready()
        submit = await submitter(process)
        await submit.submit(5)
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        few = max(descriptors(process)) + 1 + self.FEW
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (few, before[1]))

        async def has_none_left():
            return descriptors(process) >= {*range(few)}

        async with a_crowd_before(process, 4 * self.FEW):
            await eventually(has_none_left)
            await submit.submit(20)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
        await submit.submit(20)
        await experiment.drain(client)

        seen = sorted(set(submit.statuses))
        experiment.found("202 or refused", {*seen} <= {202, *REFUSED}, seen=seen)
        await experiment.judge(client)


def descriptors(process):
    return {int(file.name) for file in Path(f"/proc/{process.pid}/fd").iterdir()}


@asynccontextmanager
async def a_crowd_before(process, count):
    """Connect so many times, and say nothing."""
    parts = urlsplit(process.address)
    callers = [
        await asyncio.open_connection(parts.hostname, parts.port) for _ in range(count)
    ]
    yield
    for _, writer in callers:
        writer.close()
