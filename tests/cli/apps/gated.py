"""A capability that stands at a gate, in a thread that nobody can interrupt."""

import asyncio
from pathlib import Path
from typing import Any

from backburner import App, Context, capability


@capability("gated", max_attempts=1)
async def gated(_ctx: Context, value: dict[str, Any]) -> dict[str, Any]:
    await asyncio.to_thread(Path("gate").read_bytes)
    return value


@capability("blocking", max_attempts=1)
async def blocking(_ctx: Context, value: dict[str, Any]) -> dict[str, Any]:
    Path("gate").read_bytes()  # noqa: ASYNC240 - it is to block the event loop
    return value


app = App("gated", capabilities=[gated, blocking])
