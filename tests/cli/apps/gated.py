"""A capability that stands at a gate, in a thread that nobody can interrupt."""

import asyncio
from pathlib import Path
from typing import Any

from backburner import App, Context, capability


@capability("gated", max_attempts=1)
async def gated(_ctx: Context, value: dict[str, Any]) -> dict[str, Any]:
    await asyncio.to_thread(Path("gate").read_bytes)
    return value


app = App("gated", capabilities=[gated])
