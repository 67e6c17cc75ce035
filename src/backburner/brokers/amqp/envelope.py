"""How messages are written."""

from typing import NamedTuple

from pamqp import frame
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.frame import FrameTypes
from pamqp.header import ContentHeader

PERSISTENT = 2
TYPE = "application/json"
FRAME_BYTES = 100_000
"""The largest frame that is sent, if the server would take a larger one."""
OVERHEAD_BYTES = 8
"""What a frame has beside its body."""
PLAIN = ContentHeader(
    properties=Basic.Properties(content_type=TYPE, delivery_mode=PERSISTENT)
).marshal()[12:]
"""The properties of a message that has no name."""


class Post(NamedTuple):
    """A message and where it goes."""

    queue: str
    body: bytes
    name: str = ""

    def written(self, channel: int, frame_max: int = 0) -> bytes:
        """
        Return its frames: persistent, and returned if the queue is not there.

        `frame_max` is the size of a frame that was agreed upon with the server, with
        0 for any.
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
