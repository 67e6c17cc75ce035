"""How messages are written."""

from typing import NamedTuple

from pamqp import frame
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.frame import FrameTypes
from pamqp.header import ContentHeader

PERSISTENT = 2
TYPE = "application/json"
BODY_BYTES = 100_000
"""Below every server's limit for a frame (131,072 unless it is set lower)."""
PLAIN = ContentHeader(
    properties=Basic.Properties(content_type=TYPE, delivery_mode=PERSISTENT)
).marshal()[12:]
"""The properties of a message that has no name."""


class Post(NamedTuple):
    """A message and where it goes."""

    queue: str
    body: bytes
    name: str = ""

    def written(self, channel: int) -> bytes:
        """Return its frames: persistent, and returned if the queue is not there."""
        properties = Basic.Properties(
            content_type=TYPE, delivery_mode=PERSISTENT, message_id=self.name or None
        )
        body = self.body
        frames: list[FrameTypes] = [
            Basic.Publish(routing_key=self.queue, mandatory=True),
            ContentHeader(body_size=len(body), properties=properties),
            *[
                ContentBody(body[at : at + BODY_BYTES])
                for at in range(0, len(body), BODY_BYTES)
            ],
        ]
        return b"".join(frame.marshal(each, channel) for each in frames)
