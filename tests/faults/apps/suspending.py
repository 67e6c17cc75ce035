"""A handler that waits for a signal and for a child, between steps that it counts."""

from pathlib import Path

from pydantic import BaseModel

from backburner import App, Context, capability


class Journal(BaseModel):
    """Where each step leaves its line."""

    path: str
    number: int


def write(value: Journal, name: str) -> str:
    """Leave a line, as a provider that is called does in its own journal."""
    with Path(value.path).open("a") as journal:
        journal.write(f"{name}-{value.number}\n")
    return name


@capability("child")
async def child(_ctx: Context, value: Journal) -> int:
    """Return the number."""
    return value.number


@capability("waits")
async def waits(ctx: Context, value: Journal) -> list[int]:
    """Wait for a signal, then for a child."""
    await ctx.step("before", write, value, "before")
    told = await ctx.wait("go", into=int)
    await ctx.step("between", write, value, "between")
    return [told, await ctx.run(child, value)]


app = App("suspending", capabilities=[waits, child])
