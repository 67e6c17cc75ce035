"""What `doctor` says of a whole server that was told to promise less."""

import asyncpg

from backburner.clock import SystemClock
from backburner.ports.finding import Status
from tests.store.moving import a_store

PROMISES = ("fsync", "full_page_writes", "autovacuum", "synchronous_commit")


async def test_a_server_that_promises_too_little_is_found(own_postgres):
    sound = await examined(own_postgres.url)
    admin = await asyncpg.connect(own_postgres.url)
    await tell(admin, *(f"ALTER SYSTEM SET {name} = off" for name in PROMISES))
    careless = await examined(own_postgres.url)
    await tell(admin, "ALTER SYSTEM RESET ALL")
    await admin.close()

    assert {Status.PASS} == {sound[name].status for name in PROMISES}
    assert {"off"} == {careless[name].message for name in PROMISES}
    assert Status.WARN is careless["full_page_writes"].status
    assert {Status.FAIL} == {
        careless[name].status for name in PROMISES if name != "full_page_writes"
    }
    assert all(careless[name].fix for name in PROMISES)


async def tell(admin, *commands):
    """Change the server's settings; return when it goes by them."""
    [wanted] = await admin.fetchrow("SELECT pg_conf_load_time()")
    for command in commands:
        await admin.execute(command)
    await admin.execute("SELECT pg_reload_conf()")
    while await admin.fetchval("SELECT pg_conf_load_time() FROM pg_sleep(0.05)") == (
        wanted
    ):
        pass


async def examined(url):
    found = [finding async for finding in a_store(url).examine(SystemClock())]
    return {finding.name: finding for finding in found}
