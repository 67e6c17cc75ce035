"""Encodes messages as AMQP frames."""

from typing import NamedTuple

from pamqp import frame
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.frame import FrameTypes
from pamqp.header import ContentHeader

PERSISTENT = 2
TYPE = "application/json"
FRAME_BYTES = 100_000
"""The maximum size of a frame, even if the server allows larger ones."""
OVERHEAD_BYTES = 8
"""The size of a frame without its body."""
PLAIN = ContentHeader(
    properties=Basic.Properties(content_type=TYPE, delivery_mode=PERSISTENT)
).marshal()[12:]
"""The encoded properties of a message without an id."""


class Post(NamedTuple):
    """A message and its queue."""

    queue: str
    body: bytes
    name: str = ""

    def written(self, channel: int, frame_max: int = 0) -> bytes:
        """
        Encode the message; it is persistent, and returned if the queue does not exist.

        `frame_max` is the frame size agreed with the server; 0 means unlimited.
        """
        size = min(FRAME_BYTES, frame_max or FRAME_BYTES) - OVERHEAD_BYTES
        properties = Basic.Properties(
            content_type=TYPE, delivery_mode=PERSISTENT, message_id=self.name or None
        )
        body = self.body
        frames: list[FrameTypes] = [
            Basic.Publish(routing_key=self.queue, mandatory=True),
            ContentHeader(body_size=len(body), properties=properties),
            *[ContentBody(body[at : at + size]) for at in range(0, len(body), size)],
        ]
        return b"".join(frame.marshal(each, channel) for each in frames)
