"""Request and response models of budgets."""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from backburner.domain.costs.budget import LONGEST_VALUE, MOST
from backburner.http.schemas.jobs import Asked
from backburner.http.schemas.models import model_of
from backburner.shapes import operations

LONGEST = 10 * 366 * 86_400

ScopeName = Literal["tenant", "user", "key", "capability", "model", "flow"]

Amount = Annotated[
    int | str, Field(description="Tokens as a number, or dollars as a decimal text.")
]


class BudgetRequest(Asked):
    """A limit on tokens or money in each window of time."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"scope": "user", "tokens": 100_000, "per_seconds": 86_400}]
        }
    )

    scope: ScopeName = Field(description="What the budget applies to.")
    of: str | None = Field(
        None,
        min_length=1,
        max_length=LONGEST_VALUE,
        description="Only this value of the scope. Default: each value.",
    )
    overrun: Literal["extend", "stop"] = Field(
        "extend",
        description=(
            "Whether a job that has used up its hold may make further calls while the "
            "budget has something left (`extend`), or not (`stop`)."
        ),
    )
    tokens: int | None = Field(None, ge=0, le=MOST, strict=True)
    money: Decimal | None = Field(
        None,
        ge=0,
        le=1_000_000_000,
        decimal_places=6,
        strict=False,
        description="Limit in dollars; give this or `tokens`.",
    )
    per_seconds: int = Field(
        86_400, ge=1, le=LONGEST, description="Length of the window."
    )


BudgetRule = model_of(operations.BudgetRule, overrun={"default": "extend"})
BudgetList = model_of(operations.Budgets)
BudgetHistory = model_of(operations.BudgetHistory)


class BudgetQuery(BaseModel):
    """Identifies a budget."""

    model_config = ConfigDict(extra="forbid")

    scope: ScopeName
    of: str | None = Field(None, min_length=1, max_length=LONGEST_VALUE)
    unit: Literal["tokens", "money"] = "tokens"
    per_seconds: int = Field(86_400, ge=1, le=LONGEST)


class BudgetHistoryQuery(BudgetQuery):
    """Identifies the account of a budget, as the list of budgets shows it."""

    of: str = Field(min_length=1, max_length=LONGEST_VALUE)
