"""What jobs use, would use and have used."""

from typing import Annotated, Literal, TypedDict

from backburner.shapes import Time


class UsageSums(TypedDict):
    """Calls of models, added up."""

    calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    """Some of the input's."""
    cost_usd: str | None
    """A decimal text; `null`: a part of it is not known."""
    priced: bool
    """Whether every call has a price."""
    unpriced_calls: int
    priced_cost_usd: str
    """Of the calls that have a price."""
    late_calls: int
    """Told after their run had lost the job."""


class Usage(UsageSums):
    """What a job used of models, in all its runs."""

    models: list[str]
    price_version: str | None


class UsageTotal(UsageSums):
    """What jobs used together."""

    jobs: int


class UsageGroup(UsageTotal):
    """What jobs used that have something in common."""

    key: str


class UsageReport(TypedDict):
    """What jobs used, by what was asked; the largest first, times in order."""

    by: str
    since: Time
    until: Time | None
    total: UsageTotal
    items: list[UsageGroup]
    more: bool
    """Whether there are groups that are not listed."""


class JobCost(UsageSums):
    """A job and what its calls used."""

    id: str
    capability: str
    user: str
    state: str


class Costs(TypedDict):
    """What the newest calls of models cost, by what; the dearest first."""

    since: Time | None
    """When the first of the calls was made."""
    capped: bool
    """Whether older calls may be left out."""
    total: UsageTotal
    failed: UsageTotal
    """Of attempts that failed."""
    by_capability: list[UsageGroup]
    by_model: list[UsageGroup]
    by_user: list[UsageGroup]
    jobs: list[JobCost]
    """Jobs that the caller may see."""


class Hold(TypedDict):
    """What budgets held for a job and did not need: the most of one."""

    tokens: int | None
    cost_usd: str | None


class Left(TypedDict):
    """Something that a cancel does not undo."""

    kind: Annotated[str, Literal["calls", "text", "webhooks", "runs"]]
    count: int
    detail: str


class Receipt(TypedDict):
    """What a job had used when it was cancelled, and what cannot be taken back."""

    tokens_used: int
    cost_usd: str | None
    """A decimal text; `null`: a part of it is not known."""
    priced: bool
    hold_released: Hold | None
    """`null`: nothing was held."""
    text_delivered: int
    """Characters."""
    not_undone: list[Left]


class Times(TypedDict):
    """By when something happens: in half of all cases, and in nine of ten."""

    p50: Time
    p90: Time


class QuoteBudget(TypedDict):
    """The budget that would leave the least of its limit."""

    scope: str
    unit: Literal["tokens", "money"]
    limit: int | str
    left: int | str
    left_after: int | str
    admits: bool
    """Whether it would let the job in now."""
    window_end: Time


class Quote(TypedDict):
    """What a job would take if it were submitted now. Nothing is held by it."""

    capability: str
    queue: str
    priority: int
    model: str | None
    tokens: int | None
    """At most what the model can take."""
    tokens_basis: Annotated[str, Literal["estimate", "history"]] | None
    cost_usd: str | None
    """If all tokens were of the dearest kind."""
    priced: bool
    price_version: str | None
    jobs_ahead: int
    slots: int
    """How many jobs of the queue can run at once."""
    paused: bool
    samples: int
    """How many runs of the capability are known."""
    start: Times | None
    """`null`: nobody can tell."""
    finish: Times | None
    budget: QuoteBudget | None
    """`null`: none counts it."""
