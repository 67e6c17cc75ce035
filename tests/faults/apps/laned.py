"""A handler that calls a provider by a lane: three calls at once, in all."""

import os
from functools import cache

import httpx2

from backburner import App, Context, Lane, capability

LANE = "acme/model"


@cache
def client() -> httpx2.AsyncClient:
    """Return this process's own client."""
    return httpx2.AsyncClient(trust_env=False, timeout=60)


@capability("call", max_attempts=1)
async def call(ctx: Context, url: str) -> int:
    async with ctx.lane("acme", "model") as made:
        answer = await client().get(url, headers={"X-Worker": str(os.getpid())})
        made.hear(answer.status_code, answer.headers)
        return answer.status_code


app = App("laned", [call], lanes=[Lane(LANE, at_once=3, requests=6000)])
