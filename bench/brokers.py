"""Deletes queues of brokers between runs, and reads the servers' versions."""

import asyncio
from typing import Any

import aio_pika
from redis.asyncio import Redis


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
    """Return the version of a RabbitMQ or Redis server."""

    async def of_rabbitmq() -> str:
        async with await aio_pika.connect(url) as connection:
            transport: Any = connection.transport
            return str(transport.connection.server_properties["version"])

    async def of_redis() -> str:
        async with Redis.from_url(url) as redis:
            return str((await redis.info("server"))["redis_version"])

    return asyncio.run(of_rabbitmq() if url.startswith("amqp") else of_redis())
