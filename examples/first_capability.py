"""A first capability: `backburner serve --dev --app first_capability:app`."""

from pydantic import BaseModel

from backburner import App, Context, capability


class Text(BaseModel):
    text: str


class Count(BaseModel):
    words: int


@capability("count-words")
async def count_words(ctx: Context, value: Text) -> Count:
    await ctx.progress(1, 1, "counted")
    return Count(words=len(value.text.split()))


app = App("words", capabilities=[count_words])
