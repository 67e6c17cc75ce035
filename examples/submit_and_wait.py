"""Backburner inside your own program: submit a job, run it, wait for the result."""

import asyncio

from pydantic import BaseModel

from backburner import Backburner, Context, capability


class Person(BaseModel):
    name: str


class Greeting(BaseModel):
    text: str


@capability("greet", max_attempts=3)
async def greet(ctx: Context, person: Person) -> Greeting:
    """Greet somebody and report progress."""
    await ctx.progress(1, 2, "thinking of something nice")
    return Greeting(text=f"Hello, {person.name}!")


async def main() -> None:
    """Submit one job and print what happened to it."""
    async with Backburner(store="sqlite:///greetings.db", capabilities=[greet]) as bb:
        await bb.start_worker()
        ticket = await bb.submit(greet, Person(name="Ada"), tags=["example"])
        print((await ticket.result(timeout=10)).text)
        async for event in ticket.events():
            print(event.n, event.type)


if __name__ == "__main__":
    asyncio.run(main())
