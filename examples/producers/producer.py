"""
Submits a job by a message, without Backburner installed: `pip install pika`.

    python producer.py amqp://guest:guest@localhost/ greetings greet '{"name":"Ada"}'
"""

import json
import sys
import uuid

import pika


def main(url: str, queue: str, capability: str, value: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()  # or a message that was lost looks like one that was not
    channel.queue_declare(queue, passive=True)  # a worker makes it, of the right kind

    request_id = str(uuid.uuid4())  # keep it: sent again under this, it is the same job
    message = {
        "capability": capability,
        "input": json.loads(value),
        "requestId": request_id,
        "userId": "u-7",
    }
    channel.basic_publish(
        exchange="",
        routing_key=queue,
        body=json.dumps(message).encode(),
        properties=pika.BasicProperties(
            content_type="application/json",
            delivery_mode=2,  # on disk before the broker confirms it
            message_id=request_id,
        ),
        mandatory=True,  # raises if there is no such queue
    )
    connection.close()
    print(request_id)


if __name__ == "__main__":
    main(*sys.argv[1:])
