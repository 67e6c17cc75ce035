"""A database and a queue for every run, and what the servers say of themselves."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aio_pika
import asyncpg
from redis.asyncio import Redis


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """Make a database on the server, lend its URL, drop it."""
    name = f"bench_{secrets.token_hex(4)}"
    ask(server, f"CREATE DATABASE {name}")
    try:
        yield f"{server.rpartition('/')[0]}/{name}"
    finally:
        ask(server, f"DROP DATABASE {name} WITH (FORCE)")


def ask(url: str, statement: str) -> str | None:
    """Run one statement outside any transaction; return its first value."""

    async def run() -> str | None:
        connection = await asyncpg.connect(url)
        try:
            value = await connection.fetchval(statement, timeout=300)
        finally:
            await connection.close()
        return None if value is None else str(value)

    return asyncio.run(run())


def forget_queue(url: str, queue: str) -> None:
    """Delete a queue of a broker and its dead letters; moto's go with its process."""

    async def delete_of_rabbitmq() -> None:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            for name in (queue, f"{queue}-dlq"):
                await channel.queue_delete(name)

    async def delete_of_redis() -> None:
        async with Redis.from_url(url) as redis:
            await redis.delete(queue, f"{queue}-dlq")

    if url.startswith("amqp"):
        asyncio.run(delete_of_rabbitmq())
    elif url.startswith("redis"):
        asyncio.run(delete_of_redis())


def version_of(url: str) -> str:
    """Return what a RabbitMQ or Redis server says of its version."""

    async def of_rabbitmq() -> str:
        async with await aio_pika.connect(url) as connection:
            told: Any = connection.transport
            return str(told.connection.server_properties["version"])

    async def of_redis() -> str:
        async with Redis.from_url(url) as redis:
            return str((await redis.info("server"))["redis_version"])

    return asyncio.run(of_rabbitmq() if url.startswith("amqp") else of_redis())
