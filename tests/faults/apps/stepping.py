"""A handler of five steps, each of which leaves a line in a journal."""

from pathlib import Path

from pydantic import BaseModel

from backburner import App, Context, capability


class Journal(BaseModel):
    """Where each step leaves its line, and whether steps are stored."""

    path: str
    durable: bool = True


def write(path: str, n: int) -> int:
    """Leave a line, as a provider that is called does in its own journal."""
    with Path(path).open("a") as journal:
        journal.write(f"{n}\n")
    return n


@capability("five steps")
async def five_steps(ctx: Context, value: Journal) -> int:
    """Add up what the steps return."""
    total = 0
    for n in range(1, 6):
        if value.durable:
            total += await ctx.step(f"step {n}", write, value.path, n)
        else:
            total += write(value.path, n)
            await ctx.step(f"mark {n}", bool)
    return total


app = App("stepping", capabilities=[five_steps])
