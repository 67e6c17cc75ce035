"""What jobs use, would use and have used, under typed names."""

from datetime import datetime
from typing import NotRequired, TypedDict


class Usage(TypedDict):
    """Calls of models, added up; a cost that is `None` is not known."""

    calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: str | None
    priced: bool
    unpriced_calls: int
    priced_cost_usd: str
    late_calls: int
    models: NotRequired[list[str]]
    """There on a job."""
    price_version: NotRequired[str | None]
    jobs: NotRequired[int]
    """There in a report."""
    key: NotRequired[str]


class UsageReport(TypedDict):
    """What jobs used, by what was asked."""

    by: str
    since: str
    until: str | None
    total: Usage
    items: list[Usage]
    more: bool


class UsageQuery(TypedDict, total=False):
    """What to add up: `by` is tag, capability, model, user or day."""

    by: str | None
    since: datetime | str | None
    until: datetime | str | None
    everyone: bool | None
    limit: int | None


class Left(TypedDict):
    """Something that a cancel does not undo."""

    kind: str
    count: int
    detail: str


class Receipt(TypedDict):
    """What a job had used when it was cancelled, and what stays of it."""

    tokens_used: int
    cost_usd: str | None
    priced: bool
    hold_released: dict[str, int | str | None] | None
    text_delivered: int
    not_undone: list[Left]


class Times(TypedDict):
    """By when something happens, in half of all cases and in nine of ten."""

    p50: str
    p90: str


class Quote(TypedDict):
    """What a job would take if it were submitted now, with more than is named here."""

    capability: str
    queue: str
    model: str | None
    tokens: int | None
    tokens_basis: str | None
    cost_usd: str | None
    price_version: str | None
    jobs_ahead: int
    slots: int
    paused: bool
    samples: int
    start: Times | None
    finish: Times | None
    budget: dict[str, object] | None
