import pytest
from pamqp import frame
from pamqp.body import ContentBody

from backburner.brokers.amqp.envelope import FRAME_BYTES, Post


def frames(data):
    """Return each frame with its size."""
    while data:
        size, _, content = frame.unmarshal(data)
        yield size, content
        data = data[size:]


@pytest.mark.parametrize(
    ("agreed", "largest"), [(4096, 4096), (0, FRAME_BYTES), (131_072, FRAME_BYTES)]
)
def test_no_frame_is_larger_than_what_was_agreed_upon(agreed, largest):
    body = bytes(range(256)) * 1000
    found = [*frames(Post("q", body).written(3, agreed))]
    bodies = [content for _, content in found if isinstance(content, ContentBody)]

    assert largest == max(size for size, _ in found)
    assert body == b"".join(each.value for each in bodies)
