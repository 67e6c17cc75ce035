"""A flow whose steps are decided while it runs: split, handle each part, join."""

import asyncio

from pydantic import BaseModel

from backburner import Backburner, Context, Flow, capability


class Text(BaseModel):
    text: str


@capability("split")
async def split(ctx: Context, value: Text) -> int:
    """Add a step for each word; they are stored with this one's success."""
    words = value.text.split()
    ctx.flow.map(shout, words, before=["join"])
    return len(words)


@capability("shout")
async def shout(_ctx: Context, word: str) -> str:
    """Handle one part."""
    return word.upper()


@capability("join")
async def join(ctx: Context, _value: None) -> str:
    """Join the outputs of the steps before it."""
    parts = [need.output for name, need in ctx.needs.items() if "shout" in name]
    return " ".join(parts)


async def main() -> None:
    """Submit the flow and print the output of each step."""
    capabilities = [split, shout, join]
    async with Backburner(store="sqlite:///words.db", capabilities=capabilities) as bb:
        await bb.start_worker()
        flow = Flow()
        parts = flow.add(split, Text(text="a ticket now"))
        flow.add(join, None, after=[parts])
        ticket = await bb.submit_flow(flow)
        for name, output in (await ticket.results(timeout=10)).items():
            print(f"{name}: {output}")


if __name__ == "__main__":
    asyncio.run(main())
