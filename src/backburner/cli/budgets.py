"""The commands about budgets: how far they are used, and what they allow."""

from typing import Annotated

import typer

from backburner.cli import printing
from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect
from backburner.client import Budgets
from backburner.domain.budget import Scope

app = typer.Typer(no_args_is_help=True, help="Look at budgets; set and drop them.")

HEADINGS = ("SCOPE", "OF", "LIMIT", "HELD", "SETTLED", "OVERDRAFT", "LEFT", "UNTIL")
RULES = ("SCOPE", "OF", "UNIT", "LIMIT", "SECONDS")
DAY = 86_400

ScopeArgument = Annotated[Scope, typer.Argument(help="What it is counted by.")]
OfOption = Annotated[
    str | None, typer.Option("--of", help="The one value that it is for.")
]
PerOption = Annotated[int, typer.Option("--per-seconds", min=1, help="The window.")]


@app.command("list")
def listing(
    *,
    rules: Annotated[
        bool, typer.Option("--rules", help="What is allowed, not what is used.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """List budgets and how far they are used, in the windows of now."""
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
    money: Annotated[str | None, typer.Option(help="In dollars.")] = None,
    per_seconds: PerOption = DAY,
    of: OfOption = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Set a budget: so many tokens, or so much money, in each window."""
    with connect(url, api_key) as client:
        found = client.set_budget(
            scope.value, tokens=tokens, money=money, per_seconds=per_seconds, of=of
        )
    _write(found, as_json=as_json)


@app.command()
def drop(
    scope: ScopeArgument,
    *,
    unit: Annotated[str, typer.Option(help="tokens or money")] = "tokens",
    per_seconds: PerOption = DAY,
    of: OfOption = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Take a budget away; what is held stays held until its end."""
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
