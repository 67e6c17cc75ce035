"""Commands for budgets: limits and current use."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Annotated, Any

import typer

from backburner.cli.remote import Server, lists, remote
from backburner.client import BudgetRule, Budgets
from backburner.domain.costs.budget import Overrun, Scope

app = typer.Typer(help="List, set and delete budgets.")

HEADINGS = ("SCOPE", "OF", "LIMIT", "HELD", "SETTLED", "OVERDRAFT", "LEFT", "UNTIL")
FIELDS = itemgetter(
    *("scope", "of", "limit", "held", "settled", "overdraft", "left", "window_end")
)
POINTS = ("AT", "LIMIT", "HELD", "SETTLED")
POINT = itemgetter("at", "limit", "held", "settled")
RULES = ("SCOPE", "OF", "UNIT", "LIMIT", "SECONDS")
DAY = 86_400

ScopeArgument = Annotated[
    Scope, typer.Argument(metavar="SCOPE", help="What the budget applies to.")
]
OfOption = Annotated[
    str | None,
    typer.Option(
        "--of", help="Only this value, such as one user id. Default: each value."
    ),
]
PerOption = Annotated[
    int, typer.Option("--per-seconds", min=1, help="Length of the window.")
]
UnitOption = Annotated[str, typer.Option(help="Unit of the budget: tokens or money.")]


@lists(app)
@remote
def listing(
    server: Server,
    *,
    rules: Annotated[
        bool, typer.Option("--rules", help="Show the limits, not the usage.")
    ] = False,
) -> None:
    """List budgets and how much of each is used in the current window."""
    found = server.client.budgets()
    if rules:
        _write_rules(server, found)
    else:
        server.write_all(HEADINGS, found["items"], FIELDS)


@app.command()
@remote
def history(
    server: Server,
    scope: ScopeArgument,
    of: Annotated[
        str, typer.Argument(metavar="OF", help="Value as `budgets list` shows it.")
    ],
    *,
    unit: UnitOption = "tokens",
    per_seconds: PerOption = DAY,
) -> None:
    """Show how a budget was used in its current window; the last row is now."""
    found = server.client.budget_history(
        scope.value, of, unit=unit, per_seconds=per_seconds
    )
    server.write_all(POINTS, found["points"], POINT)


@app.command("set")
@remote
def put(
    server: Server,
    scope: ScopeArgument,
    *,
    tokens: Annotated[
        int | None, typer.Option(min=0, help="Limit in tokens per window.")
    ] = None,
    money: Annotated[
        str | None, typer.Option(help="Limit in US dollars per window.")
    ] = None,
    per_seconds: PerOption = DAY,
    of: OfOption = None,
    overrun: Annotated[
        Overrun,
        typer.Option(help="What a job does that has used up its hold."),
    ] = Overrun.EXTEND,
) -> None:
    """Set a budget: a limit in tokens or money per window."""
    found = server.client.set_budget(
        scope.value,
        tokens=tokens,
        money=money,
        per_seconds=per_seconds,
        of=of,
        overrun=overrun.value,
    )
    _write_rules(server, found)


@app.command()
@remote
def drop(
    server: Server,
    scope: ScopeArgument,
    *,
    unit: UnitOption = "tokens",
    per_seconds: PerOption = DAY,
    of: OfOption = None,
) -> None:
    """Delete a budget. Amounts held for running jobs stay until the jobs end."""
    found = server.client.drop_budget(
        scope.value, unit=unit, per_seconds=per_seconds, of=of
    )
    _write_rules(server, found)


def _write_rules(server: Server, found: Budgets) -> None:
    server.write_all(RULES, found["budgets"], _rule)


def _rule(rule: BudgetRule) -> Sequence[Any]:
    return (
        *(rule["scope"], rule["of"] or "*", rule["unit"]),
        *(rule["limit"], rule["per_seconds"]),
    )
