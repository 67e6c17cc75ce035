"""The network of these experiments fails as it is told to."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from backburner.testing.proxy import Proxy

SOON = 0.1
"""What has not come by then is held back: nothing else is asserted about time."""


@pytest.fixture
async def proxy():
    """A proxy before a server that says everything back."""

    async def echo(reader, writer):
        while said := await reader.read(1000):
            writer.write(said)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with Proxy(host, port, seed=1) as proxy:
            yield proxy


@asynccontextmanager
async def a_caller(proxy):
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    yield reader, writer
    writer.close()


async def ask(caller, said=b"hello"):
    reader, writer = caller
    writer.write(said)
    async with asyncio.timeout(60):
        return await reader.readexactly(len(said))


async def is_silent(caller):
    reader, _ = caller
    try:
        async with asyncio.timeout(SOON):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


async def test_it_passes_on_what_is_said_and_answered(proxy):
    async with a_caller(proxy) as caller:
        assert b"hello" == await ask(caller)
        assert b"x" * 200_000 == await ask(caller, b"x" * 200_000)
    assert 0 == proxy.cuts


async def test_an_end_is_passed_on(proxy):
    async with a_caller(proxy) as (reader, writer):
        writer.write_eof()
        assert b"" == await reader.read()


async def test_a_delay_holds_up_and_loses_nothing(proxy):
    proxy.delays = (3 * SOON, 4 * SOON)
    async with a_caller(proxy) as caller:
        caller[1].write(b"hello")

        assert await is_silent(caller)
        async with asyncio.timeout(60):
            assert b"hello" == await caller[0].readexactly(5)


async def test_a_reply_is_cut_in_the_middle_and_the_connection_reset(proxy):
    proxy.resets = 1.0
    async with a_caller(proxy) as caller:
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await ask(caller)
    proxy.heal()
    async with a_caller(proxy) as caller:
        assert b"hello" == await ask(caller)
    assert 1 == proxy.cuts


async def test_all_connections_are_broken_and_told_so(proxy):
    async with a_caller(proxy) as caller:
        await ask(caller)
        proxy.break_all()

        with pytest.raises(ConnectionResetError):
            await ask(caller)
    assert 1 == proxy.cuts


async def test_a_frozen_network_tells_nobody_and_goes_on_when_it_is_healed(proxy):
    async with a_caller(proxy) as old:
        await ask(old)
        proxy.freeze()
        async with a_caller(proxy) as new:
            old[1].write(b"hello")
            new[1].write(b"hello")

            assert await is_silent(old)
            assert await is_silent(new)
            proxy.heal()
            assert b"hello" == await new[0].readexactly(5)
        assert b"hello" == await old[0].readexactly(5)


async def test_a_connection_whose_other_end_vanished_stays_silent_for_good(proxy):
    async with a_caller(proxy) as old:
        await ask(old)
        proxy.orphan_all()
        proxy.heal()
        old[1].write(b"hello")

        assert await is_silent(old)
        async with a_caller(proxy) as new:
            assert b"hello" == await ask(new)


async def test_a_server_that_is_not_there_is_one_that_breaks_off():
    async with Proxy("127.0.0.1", 1) as proxy, a_caller(proxy) as (reader, _):
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)


async def test_one_that_was_stopped_listens_at_the_same_port_again(proxy):
    async with a_caller(proxy) as old:
        await ask(old)
        proxy.stop()
        with pytest.raises(ConnectionResetError):
            await ask(old)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", proxy.port)
    await proxy.start()
    async with a_caller(proxy) as caller:
        assert b"hello" == await ask(caller)
