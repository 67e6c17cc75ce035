"""Sends what was collected to the store, so that one bad item cannot hold the rest."""

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
    Send items together; if the store refuses them, each by itself.

    `failed` is told of an item that is refused by itself. `StoreUnavailable` is raised:
    nothing is wrong with the items, and what was not sent may be sent again.
    """
    try:
        await send(items)
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - one bad item must not hold the rest
        if len(items) == 1:
            failed(items[0], error)
            return
        for item in items:
            await send_all([item], send, failed)
