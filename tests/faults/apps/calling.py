"""A handler that asks a model five questions, one after the other."""

from backburner import App, Context, capability

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


app = App("calling", capabilities=[five_calls, five_forgotten_calls])
