"""A handler of five steps, each of which leaves a line in a journal."""

from pathlib import Path

from pydantic import BaseModel

from backburner import App, Context, TransientError, capability


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


def write_twice(path: str) -> int:
    """Leave a line; the first time, say that it did not happen."""
    write(path, 1)
    if Path(path).read_text().count("1") == 1:
        raise TransientError("not now")
    return 1


@capability("changed steps")
async def changed_steps(ctx: Context, value: Journal) -> int:
    """Use every way in which stored steps change."""

    def paid() -> int:
        ctx.used("m", input_tokens=3, output_tokens=4)
        return write(value.path, 3)

    total = await ctx.step(
        "begun", write_twice, value.path, once=True, in_doubt="retry"
    )
    total += await ctx.step("rejected", write, value.path, 2)
    await ctx.forget("rejected")
    return total + await ctx.step("paid", paid)


app = App("stepping", capabilities=[five_steps, changed_steps])
