"""A handler that asks a model five questions, one after the other."""

import os
from typing import Any

import httpx2

from backburner import NOT_DONE, App, Context, capability

KNOWN = os.environ  # noqa: TID251 - where the provider is
CALLS = 5
EXPECTED = 10_000
"""Tokens that are held for a job."""


@capability("five calls", tokens=EXPECTED)
async def five_calls(ctx: Context, name: str) -> list[str]:
    """Return the answers."""
    return [await ctx.ask(f"{name}, question {n}") for n in range(1, CALLS + 1)]


@capability("five forgotten calls", tokens=EXPECTED)
async def five_forgotten_calls(ctx: Context, name: str) -> list[str]:
    """Return the answers; none of them is a step."""
    questions = [f"{name}, question {n}" for n in range(1, CALLS + 1)]
    return [await ctx.ask(each, remember=False) for each in questions]


def key() -> dict[str, str]:
    """Return the header that says which worker asks."""
    return {"Authorization": f"Bearer {KNOWN['OPENAI_API_KEY']}"}


async def call(ctx: Context, question: str) -> str:
    """Ask the provider directly, with an id under which it can look the call up."""
    url, id_ = KNOWN["OPENAI_BASE_URL"], f"{ctx.job.id}/{question}"
    body = {"model": "m", "messages": [{"content": question}], "id": id_}
    async with httpx2.AsyncClient(trust_env=False, timeout=180) as http:
        answer = await http.post(f"{url}/chat/completions", json=body, headers=key())
    return used(ctx, answer.json())


async def look_up(ctx: Context, question: str) -> Any:
    """Return the answer if the provider has had the call."""
    url, id_ = KNOWN["OPENAI_BASE_URL"], f"{ctx.job.id}/{question}"
    async with httpx2.AsyncClient(trust_env=False, timeout=180) as http:
        found = await http.post(f"{url}/lookup", json={"id": id_}, headers=key())
    return used(ctx, found.json()) if found.is_success else NOT_DONE


def used(ctx: Context, answer: dict[str, Any]) -> str:
    """Record the usage that an answer states; return its text."""
    read, written = (answer["usage"][f"{n}_tokens"] for n in ("prompt", "completion"))
    ctx.used("m", input_tokens=read, output_tokens=written)
    return str(answer["choices"][0]["message"]["content"])


@capability("five calls once", tokens=EXPECTED)
async def five_calls_once(ctx: Context, name: str) -> list[str]:
    """Return the answers; a call that may have been made is looked up."""
    questions = [f"{name}, question {n}" for n in range(1, CALLS + 1)]
    return [
        await ctx.step(each, call, ctx, each, once=True, reconcile=look_up)
        for each in questions
    ]


app = App("calling", capabilities=[five_calls, five_forgotten_calls, five_calls_once])
