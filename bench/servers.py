"""A database for every run."""

import asyncio
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import asyncpg


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """Create a database on the server, yield its URL, and drop it."""
    name = f"bench_{secrets.token_hex(4)}"
    ask(server, f"CREATE DATABASE {name}")
    try:
        yield f"{server.rpartition('/')[0]}/{name}"
    finally:
        ask(server, f"DROP DATABASE {name} WITH (FORCE)")


def ask(url: str, statement: str) -> str | None:
    """Run one statement outside any transaction; return its first value, as text."""

    async def run() -> str | None:
        connection = await asyncpg.connect(url)
        try:
            value = await connection.fetchval(statement, timeout=300)
        finally:
            await connection.close()
        return None if value is None else str(value)

    with ThreadPoolExecutor(1) as pool:  # there may be a loop in this thread
        return pool.submit(asyncio.run, run()).result()
