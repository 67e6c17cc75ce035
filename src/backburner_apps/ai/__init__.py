"""
The AI service: capabilities by name, answered at once or by a callback.

A request that is answered later is a flow of two jobs, capability and callback. The
callback runs however the capability ended, so retrying it calls no model again.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from backburner import App, Backburner
from backburner_apps.ai.callback import callback
from backburner_apps.ai.parsing import parse_task


@asynccontextmanager
async def _serves(house: Backburner) -> AsyncIterator[Sequence[Any]]:
    # A worker has no use for what it brings.
    from backburner_apps.ai.routes import routes  # noqa: PLC0415

    yield routes(house)


app = App("ai", capabilities=[parse_task], own=[callback], serves=_serves)
