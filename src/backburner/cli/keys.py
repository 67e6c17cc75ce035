"""Commands for API keys. They use the store directly, so no key is needed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer

from backburner.cli import printing
from backburner.cli.asking import JsonOption, now, span
from backburner.cli.exits import Exit, leave, needing_the_store, refuse
from backburner.cli.remote import lists
from backburner.cli.serving import StoreOption
from backburner.domain.auth.access import DEFAULT_SCOPES, ROLES, Role, possible
from backburner.domain.auth.key import ID_LENGTH, PREFIX, ApiKey
from backburner.domain.errors import InvalidInput, KeyNotFound
from backburner.domain.jobs.job import rfc3339
from backburner.settings import read

T = TypeVar("T")

app = typer.Typer(help="Create, list and revoke API keys.")

HEADINGS = ("ID", "NAME", "TENANT", "USER", "SCOPES", "STATE", "LAST USED")
ALL = "all"

TenantOption = Annotated[str, typer.Option(help="Tenant of the key.", metavar="NAME")]


@app.command()
def create(
    *,
    name: Annotated[str, typer.Option(help="Name, to recognise the key.")] = "a key",
    tenant: TenantOption = "default",
    user: Annotated[
        str | None,
        typer.Option(
            help="Bind the key to this user. Default: not bound; it acts as user 1.",
            metavar="ID",
        ),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="Scope to grant. Can be repeated. `all` grants every scope that a "
            "key of this tenant and user can have."
        ),
    ] = None,
    role: Annotated[
        Role | None,
        typer.Option(help="Grant the scopes of a role; see docs/security.md."),
    ] = None,
    expires_in: Annotated[
        str | None,
        typer.Option(help="How long it is valid, for example 90d.", metavar="SPAN"),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print it. It is not stored and cannot be shown again."""
    from backburner.engine.access.keys import Actor, Keys, NewKey

    wanted = NewKey(
        name=name,
        scopes=_scopes(scope, role, possible(tenant, user)),
        user=user,
        expires_at=_expiry(expires_in),
    )
    if not tenant.strip() or not tenant.isprintable():
        refuse("--tenant must be a printable name")

    async def make(keys: Keys) -> tuple[ApiKey, str]:
        return await keys.create(wanted, Actor("command line", tenant))

    key, text = _with_keys(store, make)
    if as_json:
        printing.write_json({**_told(key), "key": text})
        return
    printing.write_line(text)
    printing.say(
        f"key {key.id} of tenant {key.tenant}; save it now, it is not shown again"
    )


@lists(app)
def listing(*, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the keys of all tenants, oldest first."""
    found = _with_keys(store, lambda keys: keys.list())
    if as_json:
        for key in found:
            printing.write_json(_told(key))
        return
    printing.write_rows(
        HEADINGS,
        (
            (
                key.id,
                key.name,
                key.tenant,
                key.user,
                " ".join(sorted(key.scopes)),
                _state(key),
                _time(key.last_used_at),
            )
            for key in found
        ),
    )


@app.command()
def revoke(
    key_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id, as `list` prints it.")
    ],
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke a key. Running servers refuse it within seconds."""
    from backburner.engine.access.keys import Actor, Keys

    async def end(keys: Keys) -> None:
        tenants = {key.id: key.tenant for key in await keys.list()}
        tenant = tenants.get(key_id, "")
        await keys.revoke(key_id, Actor("command line", tenant))

    try:
        _with_keys(store, end)
    except KeyNotFound:
        leave(
            Exit.NOT_FOUND,
            f"no key has this ID: use the {ID_LENGTH} characters after {PREFIX}",
        )
    if as_json:
        printing.write_json({"id": key_id, "state": "revoked"})
    else:
        printing.write_line("revoked")


def _with_keys(store: str | None, act: Callable[[Any], Awaitable[T]]) -> T:
    """Run an action on the keys of the chosen store."""
    from backburner.wiring import open_keys

    settings = read(store=store)

    async def run() -> T:
        async with open_keys(settings) as keys:
            return await act(keys)

    try:
        with needing_the_store():
            return asyncio.run(run())
    except InvalidInput as error:
        refuse(str(error))


def _scopes(
    given: list[str] | None, role: Role | None, everything: frozenset[str]
) -> frozenset[str]:
    scopes = frozenset(given or ())
    if ALL in scopes:
        scopes = scopes - {ALL} | everything
    if role is not None:
        scopes |= ROLES[role]
    return scopes or DEFAULT_SCOPES


def _expiry(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return round((now() + span(text)).timestamp() * 1000)
    except (OverflowError, ValueError):
        refuse(f"--expires-in {text} is too long")


def _told(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "user": key.user,
        "scopes": sorted(key.scopes),
        "state": _state(key),
        "created_at": _time(key.created_at),
        "expires_at": _time(key.expires_at),
        "revoked_at": _time(key.revoked_at),
        "last_used_at": _time(key.last_used_at),
    }


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "valid" if key.is_good(round(now().timestamp() * 1000)) else "expired"


def _time(instant: int | None) -> str | None:
    return None if instant is None else rfc3339(instant)
