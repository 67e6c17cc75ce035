"""RabbitMQ: durable queues of work notifications, and queues of dead letters."""

from backburner.brokers.amqp.broker import AmqpBroker

__all__ = ["AmqpBroker"]
