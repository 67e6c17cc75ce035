"""`chat` over HTTP."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from backburner import Backburner


def routes(house: Backburner) -> Sequence[BaseRoute]:
    """Return the routes over an open `Backburner`."""
    del house
    return []
