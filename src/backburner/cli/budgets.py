"""Commands for budgets: limits and current use."""

from typing import Annotated

import typer

from backburner.cli import printing
from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect
from backburner.client import Budgets
from backburner.domain.costs.budget import Overrun, Scope

app = typer.Typer(no_args_is_help=True, help="List, set and delete budgets.")

HEADINGS = ("SCOPE", "OF", "LIMIT", "HELD", "SETTLED", "OVERDRAFT", "LEFT", "UNTIL")
RULES = ("SCOPE", "OF", "UNIT", "LIMIT", "SECONDS")
DAY = 86_400

ScopeArgument = Annotated[Scope, typer.Argument(help="What the budget applies to.")]
OfOption = Annotated[
    str | None,
    typer.Option("--of", help="Only this value, such as one user id. Default: each."),
]
PerOption = Annotated[
    int, typer.Option("--per-seconds", min=1, help="Length of the window.")
]


@app.command("list")
def listing(
    *,
    rules: Annotated[
        bool, typer.Option("--rules", help="Show the limits instead of the use.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """List budgets and how much of each is used in the current window."""
    with connect(url, api_key) as client:
        found = client.budgets()
    if as_json:
        for told in found["budgets"] if rules else found["items"]:
            printing.write_json(told)
    elif rules:
        _write_rules(found)
    else:
        printing.write_rows(
            HEADINGS,
            (
                (
                    *(budget["scope"], budget["of"], budget["limit"], budget["held"]),
                    *(budget["settled"], budget["overdraft"], budget["left"]),
                    budget["window_end"],
                )
                for budget in found["items"]
            ),
        )


@app.command("set")
def put(
    scope: ScopeArgument,
    *,
    tokens: Annotated[int | None, typer.Option(min=0)] = None,
    money: Annotated[
        str | None, typer.Option(help="Limit in US dollars per window.")
    ] = None,
    per_seconds: PerOption = DAY,
    of: OfOption = None,
    overrun: Annotated[
        Overrun,
        typer.Option(help="Whether a job that has used up its hold goes on."),
    ] = Overrun.EXTEND,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Set a budget: a limit in tokens or money per window."""
    with connect(url, api_key) as client:
        found = client.set_budget(
            scope.value,
            tokens=tokens,
            money=money,
            per_seconds=per_seconds,
            of=of,
            overrun=overrun.value,
        )
    _write(found, as_json=as_json)


@app.command()
def drop(
    scope: ScopeArgument,
    *,
    unit: Annotated[
        str, typer.Option(help="Unit of the budget: tokens or money.")
    ] = "tokens",
    per_seconds: PerOption = DAY,
    of: OfOption = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Delete a budget. Amounts held for running jobs stay until the jobs end."""
    with connect(url, api_key) as client:
        found = client.drop_budget(
            scope.value, unit=unit, per_seconds=per_seconds, of=of
        )
    _write(found, as_json=as_json)


def _write(found: Budgets, *, as_json: bool) -> None:
    if as_json:
        for rule in found["budgets"]:
            printing.write_json(rule)
    else:
        _write_rules(found)


def _write_rules(found: Budgets) -> None:
    printing.write_rows(
        RULES,
        (
            (
                *(rule["scope"], rule["of"] or "*", rule["unit"]),
                *(rule["limit"], rule["per_seconds"]),
            )
            for rule in found["budgets"]
        ),
    )
