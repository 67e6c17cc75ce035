"""RabbitMQ: a durable queue for each queue, hints on it, dead letters beside it."""

from backburner.brokers.amqp.broker import AmqpBroker

__all__ = ["AmqpBroker"]
