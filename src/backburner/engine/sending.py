"""Sends collected items to the store; one invalid item does not block others."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from backburner.domain.errors import StoreUnavailable

T = TypeVar("T")


async def send_all(
    items: Sequence[T],
    send: Callable[[Sequence[T]], Awaitable[None]],
    failed: Callable[[T, Exception], None],
) -> None:
    """
    Send items together; if the store refuses them, send each separately.

    `failed` is called with an item that is refused on its own. `StoreUnavailable` is
    raised, because the items are not the cause and can be sent again.
    """
    try:
        await send(items)
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - one bad item must not block others
        if len(items) == 1:
            failed(items[0], error)
            return
        for item in items:
            await send_all([item], send, failed)
