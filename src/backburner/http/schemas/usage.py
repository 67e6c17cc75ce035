"""Response models of usage and quotes."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

Dollars = Annotated[
    str | None,
    Field(description="A decimal text; `null`: a part of it is not known."),
]


class UsageSums(BaseModel):
    """Calls of models, added up."""

    calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int = Field(description="Some of the input's.")
    cost_usd: Dollars
    priced: bool = Field(description="Whether every call has a price.")
    unpriced_calls: int
    priced_cost_usd: str = Field(description="Of the calls that have a price.")
    late_calls: int = Field(description="Told after their run had lost the job.")


class UsageView(UsageSums):
    """What a job used of models, in all its runs."""

    models: list[str]
    price_version: str | None


class UsageTotal(UsageSums):
    """What jobs used together."""

    jobs: int


class UsageGroup(UsageTotal):
    """What jobs used that have something in common."""

    key: str


class UsageReport(BaseModel):
    """What jobs used, by what was asked; the largest first, days in their order."""

    by: str
    since: datetime
    until: datetime | None
    total: UsageTotal
    items: list[UsageGroup]
    more: bool = Field(description="Whether there are groups that are not listed.")


class Hold(BaseModel):
    """What budgets held for a job and did not need: the most of one."""

    tokens: int | None
    cost_usd: str | None


class Left(BaseModel):
    """Something that a cancel does not undo."""

    kind: Literal["calls", "text", "webhooks", "runs"]
    count: int
    detail: str


class ReceiptView(BaseModel):
    """What a job had used when it was cancelled, and what cannot be taken back."""

    tokens_used: int
    cost_usd: Dollars
    priced: bool
    hold_released: Hold | None = Field(description="`null`: nothing was held.")
    text_delivered: int = Field(description="Characters.")
    not_undone: list[Left]


class Times(BaseModel):
    """By when something happens: in half of all cases, and in nine of ten."""

    p50: datetime
    p90: datetime


class QuoteBudget(BaseModel):
    """The budget that would leave the least of its limit."""

    scope: str
    unit: Literal["tokens", "money"]
    limit: int | str
    left: int | str
    left_after: int | str
    admits: bool = Field(description="Whether it would let the job in now.")
    window_end: datetime


class QuoteView(BaseModel):
    """What a job would take if it were submitted now. Nothing is held by it."""

    capability: str
    queue: str
    priority: int
    model: str | None
    tokens: int | None = Field(description="At most what the model can take.")
    tokens_basis: Literal["estimate", "history"] | None
    cost_usd: str | None = Field(description="If all tokens were of the dearest kind.")
    priced: bool
    price_version: str | None
    jobs_ahead: int
    slots: int = Field(description="How many jobs of the queue can run at once.")
    paused: bool
    samples: int = Field(description="How many runs of the capability are known.")
    start: Times | None = Field(description="`null`: nobody can tell.")
    finish: Times | None
    budget: QuoteBudget | None = Field(description="`null`: none counts it.")


class ForkQuote(BaseModel):
    """What a fork would take."""

    reused: list[str] = Field(description="The steps whose results it uses.")
    quote: QuoteView
