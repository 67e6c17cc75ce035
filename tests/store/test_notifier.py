import asyncio
import signal
import sys
from contextlib import closing

import pytest

from backburner.ports.notifier import Notification
from backburner.stores.sqlite.notifier import SocketNotifier
from tests import warm

NOTIFYING_PROGRAM = """
import asyncio, sys
from pathlib import Path
from backburner.ports.notifier import Notification
from backburner.stores.sqlite.notifier import SocketNotifier

async def main():
    notifier = SocketNotifier(Path(sys.argv[1]))
    notifier.open()
    notifier.notify(Notification(int(sys.argv[2])))
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


class Listener:
    """Hears a notifier and says when it was rung."""

    def __init__(self, notifier):
        self.heard = Notification(0)
        self._rung = asyncio.Event()
        notifier.listen(self._hear)

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
def notify_from_another_process(folder):
    started = []

    def notify(what):
        started.append(
            warm.Popen(
                [sys.executable, "-c", NOTIFYING_PROGRAM, folder, str(int(what))],
                stdin=warm.PIPE,
            )
        )
        return started[-1]

    yield notify
    for process in started:
        process.kill()
        process.communicate()


def opened(folder):
    notifier = SocketNotifier(folder)
    notifier.open()
    return closing(notifier)


async def test_a_ring_reaches_another_process(folder, notify_from_another_process):
    with opened(folder) as notifier:
        listener = Listener(notifier)
        notify_from_another_process(Notification.WORK | Notification.CANCELLED)

        assert Notification.WORK | Notification.CANCELLED == await listener.wait()


async def test_a_ring_reaches_whoever_listens_here(folder):
    with opened(folder) as notifier:
        one, other = Listener(notifier), Listener(notifier)
        notifier.notify(Notification.EVENTS)

        assert [Notification.EVENTS] * 2 == [await one.wait(), await other.wait()]


async def test_who_stopped_listening_is_not_called(folder):
    heard = []
    with opened(folder) as notifier:
        unsubscribe = notifier.listen(heard.append)
        listener = Listener(notifier)
        unsubscribe()
        notifier.notify(Notification.WORK)
        await listener.wait()

    assert [] == heard


async def test_rings_in_quick_succession_are_one(folder):
    heard = []
    with opened(folder) as notifier:
        notifier.listen(heard.append)
        listener = Listener(notifier)
        notifier.notify(Notification.WORK)
        notifier.notify(Notification.EVENTS)
        await listener.wait()

    assert [Notification.WORK | Notification.EVENTS] == heard


@pytest.mark.parametrize("length", [90, 250])
async def test_a_long_path_is_no_obstacle(tmp_path, length):
    folder = tmp_path / ("x" * length)
    with opened(folder) as one, opened(folder) as other:
        listener = Listener(one)
        other.notify(Notification.WORK)

        assert Notification.WORK == await listener.wait()


async def test_the_socket_of_a_killed_process_is_swept(
    folder, notify_from_another_process
):
    with opened(folder) as notifier:
        listener = Listener(notifier)
        process = notify_from_another_process(Notification.WORK)
        await listener.wait()
        process.send_signal(signal.SIGKILL)
        process.wait()
        left = len(list(folder.iterdir()))
        notifier._flush()

        assert (2, 1) == (left, len(list(folder.iterdir())))


async def test_a_socket_is_removed_when_its_notifier_closes(folder):
    with opened(folder):
        pass

    assert [] == list(folder.iterdir())


async def test_a_process_that_does_not_listen_is_not_waited_for(folder):
    with opened(folder) as deaf, opened(folder) as notifier:
        asyncio.get_running_loop().remove_reader(deaf._socket.fileno())
        listener = Listener(notifier)
        for _ in range(10_000):
            notifier.notify(Notification.WORK)
            notifier._flush()

        assert Notification.WORK == await listener.wait()


async def test_a_folder_that_was_removed_does_not_silence_the_notifier_here(folder):
    with opened(folder) as notifier:
        listener = Listener(notifier)
        for socket in folder.iterdir():
            socket.unlink()
        folder.rmdir()
        notifier.notify(Notification.WORK)

        assert Notification.WORK == await listener.wait()


async def test_a_notifier_that_is_not_open_rings_for_nobody(folder):
    notifier = SocketNotifier(folder)
    notifier.notify(Notification.WORK)
    notifier.close()

    assert not folder.exists()


async def test_only_the_owner_may_ring(folder):
    with opened(folder):
        assert 0o700 == folder.stat().st_mode & 0o777
