import asyncio
import signal
import sys
from contextlib import closing

import pytest

from backburner.ports.bell import Ring
from backburner.stores.sqlite.bell import SocketBell
from tests import warm

RINGER = """
import asyncio, sys
from pathlib import Path
from backburner.ports.bell import Ring
from backburner.stores.sqlite.bell import SocketBell

async def main():
    bell = SocketBell(Path(sys.argv[1]))
    bell.open()
    bell.ring(Ring(int(sys.argv[2])))
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


class Listener:
    """Hears a bell and says when it was rung."""

    def __init__(self, bell):
        self.heard = Ring(0)
        self._rung = asyncio.Event()
        bell.listen(self._hear)

    def _hear(self, what):
        self.heard |= what
        self._rung.set()

    async def wait(self):
        async with asyncio.timeout(60):
            await self._rung.wait()
        return self.heard


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "jobs.db-wake"


@pytest.fixture
def ring_from_another_process(folder):
    started = []

    def ring(what):
        started.append(
            warm.Popen(
                [sys.executable, "-c", RINGER, folder, str(int(what))],
                stdin=warm.PIPE,
            )
        )
        return started[-1]

    yield ring
    for process in started:
        process.kill()
        process.communicate()


def opened(folder):
    bell = SocketBell(folder)
    bell.open()
    return closing(bell)


async def test_a_ring_reaches_another_process(folder, ring_from_another_process):
    with opened(folder) as bell:
        listener = Listener(bell)
        ring_from_another_process(Ring.WORK | Ring.CANCELLED)

        assert Ring.WORK | Ring.CANCELLED == await listener.wait()


async def test_a_ring_reaches_whoever_listens_here(folder):
    with opened(folder) as bell:
        one, other = Listener(bell), Listener(bell)
        bell.ring(Ring.EVENTS)

        assert [Ring.EVENTS] * 2 == [await one.wait(), await other.wait()]


async def test_who_stopped_listening_is_not_called(folder):
    heard = []
    with opened(folder) as bell:
        deafen = bell.listen(heard.append)
        listener = Listener(bell)
        deafen()
        bell.ring(Ring.WORK)
        await listener.wait()

    assert [] == heard


async def test_rings_in_quick_succession_are_one(folder):
    heard = []
    with opened(folder) as bell:
        bell.listen(heard.append)
        listener = Listener(bell)
        bell.ring(Ring.WORK)
        bell.ring(Ring.EVENTS)
        await listener.wait()

    assert [Ring.WORK | Ring.EVENTS] == heard


@pytest.mark.parametrize("length", [90, 250])
async def test_a_long_path_is_no_obstacle(tmp_path, length):
    folder = tmp_path / ("x" * length)
    with opened(folder) as one, opened(folder) as other:
        listener = Listener(one)
        other.ring(Ring.WORK)

        assert Ring.WORK == await listener.wait()


async def test_the_socket_of_a_killed_process_is_swept(
    folder, ring_from_another_process
):
    with opened(folder) as bell:
        listener = Listener(bell)
        process = ring_from_another_process(Ring.WORK)
        await listener.wait()
        process.send_signal(signal.SIGKILL)
        process.wait()
        left = len(list(folder.iterdir()))
        bell._flush()

        assert (2, 1) == (left, len(list(folder.iterdir())))


async def test_a_socket_is_removed_when_its_bell_closes(folder):
    with opened(folder):
        pass

    assert [] == list(folder.iterdir())


async def test_a_process_that_does_not_listen_is_not_waited_for(folder):
    with opened(folder) as deaf, opened(folder) as bell:
        asyncio.get_running_loop().remove_reader(deaf._socket.fileno())
        listener = Listener(bell)
        for _ in range(10_000):
            bell.ring(Ring.WORK)
            bell._flush()

        assert Ring.WORK == await listener.wait()


async def test_a_folder_that_was_removed_does_not_silence_the_bell_here(folder):
    with opened(folder) as bell:
        listener = Listener(bell)
        for socket in folder.iterdir():
            socket.unlink()
        folder.rmdir()
        bell.ring(Ring.WORK)

        assert Ring.WORK == await listener.wait()


async def test_a_bell_that_is_not_open_rings_for_nobody(folder):
    bell = SocketBell(folder)
    bell.ring(Ring.WORK)
    bell.close()

    assert not folder.exists()


async def test_only_the_owner_may_ring(folder):
    with opened(folder):
        assert 0o700 == folder.stat().st_mode & 0o777
