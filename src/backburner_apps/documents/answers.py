"""
Answers to questions about documents: a job that retrieves, asks and cites.

The job's result has the text with citations such as `[2]` and the sources that it
cites, or says that the documents do not support an answer. Its text is streamed from
the first citation on.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from backburner import CamelModel, Context, RetryPolicy, capability, estimate_of
from backburner_apps.documents import search
from backburner_apps.documents.answer_prompt import RULES, Passage, conversation
from backburner_apps.documents.citations import CitedText
from backburner_apps.documents.full_text import Filters
from backburner_apps.documents.limits import ANSWER_QUEUE

LONGEST_QUESTION: Final = 2_000
"""Maximum number of characters of a question."""
SOURCES: Final = 8
"""Number of passages that the model gets."""
LONGEST_ANSWER: Final = 800
"""Maximum number of tokens of an answer."""
EXPECTED: Final = 300 + SOURCES * 280
"""Tokens of an answer and of the passages that are read for it, for budgets."""
LONGEST_RUN: Final = timedelta(minutes=5)
RETRIEVED, ASKED, ALL = 20, 90, 100
"""Progress of the answer, in percent."""


class AnswerRequest(CamelModel):
    """A question about the caller's documents, or those of one batch."""

    question: Annotated[
        str,
        StringConstraints(
            strict=True,
            strip_whitespace=True,
            min_length=1,
            max_length=LONGEST_QUESTION,
        ),
    ]
    batch_id: Annotated[str | None, Field(max_length=100)] = None


class Source(CamelModel):
    """A passage that an answer cites as `[n]`."""

    n: int
    file_id: str
    file_name: str
    page: int | None = None
    snippet: str


class Answer(CamelModel):
    """The answer to a question."""

    text: str = ""
    sources: list[Source] = Field(default_factory=list)
    unsupported: bool = False
    mode: str
    """How the passages were searched: `hybrid` or `keyword`."""


@capability(
    "documents.answer",
    queue=ANSWER_QUEUE,
    timeout=LONGEST_RUN,
    retry=RetryPolicy.listed(timedelta(seconds=2), timedelta(seconds=4)),
    tokens=estimate_of(system=RULES, output=EXPECTED),
    guard="flag",
)
async def answer(ctx: Context, value: AnswerRequest) -> Answer:
    """Answer a question from the passages that match it best."""
    owner, question = ctx.job.owner, value.question
    filters = Filters(value.batch_id, None)
    # A stored step: after an interruption, the next run uses the same passages and
    # finds their stored answer. Texts are read again: deleted ones are not cited.
    ranked = await ctx.step("rank", search.rank, ctx, owner, question, filters, SOURCES)
    found = await search.results(ctx, owner, question, ranked, SOURCES)
    await ctx.progress(RETRIEVED, ALL)
    passages = [_passage(hit) for hit in found.results]
    if not passages:
        return Answer(unsupported=True, mode=found.mode)
    cited = await _ask(ctx, value.question, passages)
    await ctx.progress(ALL, ALL)
    sources = _sources(passages, cited.cited)
    if not cited.text or not sources:
        return Answer(unsupported=True, mode=found.mode)
    return Answer(text=cited.text, sources=sources, mode=found.mode)


async def _ask(ctx: Context, question: str, passages: Sequence[Passage]) -> CitedText:
    """Call the model; emit the parts of its answer that may be shown."""
    cited = CitedText(len(passages))

    async def emit(text: str) -> None:
        if text:
            await ctx.emit(text)

    async def hear(piece: str) -> None:
        await emit(cited.take(piece))

    await ctx.ask(
        conversation(question, passages),
        stream=hear,
        partial=True,
        max_tokens=LONGEST_ANSWER,
    )
    await emit(cited.end())
    return cited


def _passage(hit: search.Result) -> Passage:
    return Passage(hit.file_id, hit.file_name, hit.page, hit.text, hit.snippet)


def _sources(passages: Sequence[Passage], cited: frozenset[int]) -> list[Source]:
    return [
        Source(
            n=n,
            file_id=passage.file_id,
            file_name=passage.file_name,
            page=passage.page,
            snippet=passage.snippet,
        )
        for n, passage in enumerate(passages, 1)
        if n in cited
    ]
