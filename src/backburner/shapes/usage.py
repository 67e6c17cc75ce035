"""Usage, costs and estimates."""

from typing import Annotated, Literal, TypedDict

from backburner.shapes import Time


class UsageSums(TypedDict):
    """The sum of model calls."""

    calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    """The part of the input that was cached."""
    cost_usd: str | None
    """Cost in dollars as a decimal text; `null` if a part of it is unknown."""
    priced: bool
    """Whether every call has a price."""
    unpriced_calls: int
    priced_cost_usd: str
    """Cost of the calls that have a price."""
    late_calls: int
    """Number of calls that were reported after their run had lost the job."""


class Usage(UsageSums):
    """The model usage of a job, over all its runs."""

    models: list[str]
    price_version: str | None


class ModelCall(TypedDict):
    """A model call of a job."""

    at: Time
    model: str
    provider: str | None
    generation: int
    """How often the job had been retried by hand."""
    run: int
    """The number of the `job.started` event of its run."""
    duration_ms: int | None
    """How long the provider took, without waits for its lane; `null` if unknown."""
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    """The part of the input that was cached."""
    cost_usd: str | None
    """Cost in dollars as a decimal text; `null` if unknown."""
    price_version: str | None
    late: bool
    """Whether it was reported after its run had lost the job."""


class UsageTotal(UsageSums):
    """The total usage of several jobs."""

    jobs: int


class UsageGroup(UsageTotal):
    """The total usage of the jobs of one group."""

    key: str


class UsageReport(TypedDict):
    """Usage by group: the largest first, or times in order."""

    by: str
    since: Time
    until: Time | None
    total: UsageTotal
    items: list[UsageGroup]
    more: bool
    """Whether there are more groups."""


class JobCost(UsageSums):
    """A job and the usage of its calls."""

    id: str
    capability: str
    user: str
    state: str


class Costs(TypedDict):
    """The cost of the newest model calls by purpose, most expensive first."""

    since: Time | None
    """When the first of these calls was made."""
    capped: bool
    """Whether older calls were left out."""
    total: UsageTotal
    failed: UsageTotal
    """Usage of failed attempts."""
    by_capability: list[UsageGroup]
    by_model: list[UsageGroup]
    by_user: list[UsageGroup]
    jobs: list[JobCost]
    """Jobs that are visible to the caller."""


class Hold(TypedDict):
    """What budgets held for a job and released; of several budgets, the maximum."""

    tokens: int | None
    cost_usd: str | None


class Left(TypedDict):
    """A kind of effect that a cancellation does not undo."""

    kind: Annotated[str, Literal["calls", "text", "webhooks", "runs"]]
    count: int
    detail: str


class Receipt(TypedDict):
    """What a job had used when it was cancelled, and what cannot be undone."""

    tokens_used: int
    cost_usd: str | None
    """Cost in dollars as a decimal text; `null` if a part of it is unknown."""
    priced: bool
    hold_released: Hold | None
    """`null` if nothing was held."""
    text_delivered: int
    """Length of the streamed text in characters."""
    not_undone: list[Left]


class Times(TypedDict):
    """Times by which something happens in half of all cases, and in nine of ten."""

    p50: Time
    p90: Time


class QuoteBudget(TypedDict):
    """The budget of which the smallest share would be left."""

    scope: str
    unit: Literal["tokens", "money"]
    limit: int | str
    left: int | str
    left_after: int | str
    admits: bool
    """Whether it would admit the job now."""
    window_end: Time


class Quote(TypedDict):
    """An estimate for a job that is submitted now; nothing is held."""

    capability: str
    queue: str
    priority: int
    model: str | None
    tokens: int | None
    """Limited to what the model can read."""
    tokens_basis: Annotated[str, Literal["estimate", "history"]] | None
    cost_usd: str | None
    """Computed as if all tokens were of the most expensive kind."""
    priced: bool
    price_version: str | None
    jobs_ahead: int
    slots: int
    """How many jobs of the queue can run concurrently."""
    paused: bool
    samples: int
    """How many runs of the capability the estimate is based on."""
    start: Times | None
    """`null` if unknown."""
    finish: Times | None
    budget: QuoteBudget | None
    """`null` if no budget applies."""
