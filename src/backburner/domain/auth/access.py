"""
Access rules: scopes, roles as sets of scopes, and which keys a key may create.

There are three levels. A user sees its own jobs. A tenant scope covers all users of
one tenant. A platform scope covers all tenants; only keys of the platform's tenant can
hold one. This module decides what a key may do; `http/auth.py` enforces it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backburner.domain.jobs.job import Instant, Owner, Tenant, Visibility

PLATFORM_TENANT: Final = "default"
"""The tenant of the platform's own keys. Only they can hold platform scopes."""

DEFAULT_USER: Final = "1"
"""The user of a key without one, unless a request names another (`users:act`)."""

ACT: Final = "users:act"
"""Act as any user of the tenant, given in `X-User-Id`."""
ACT_ACROSS: Final = "tenants:act"
"""Act in any tenant, given in `X-Tenant-Id`."""
READ_TENANT: Final = "tenant:read"
"""Read the jobs of all users of the tenant, and retry their dead letters."""
KEYS: Final = "keys:admin"

DEFAULT_SCOPES: Final = frozenset(
    {
        "jobs:read",
        "jobs:write",
        "dead-letters:read",
        "dead-letters:retry",
        "webhooks:read",
        "webhooks:write",
    }
)
"""The scopes of a key that is created without any: access to its own jobs."""
ANSWER: Final = "questions:answer"
"""Answer questions that the jobs of any user of the tenant ask people."""
TENANT_SCOPES: Final = frozenset({READ_TENANT, "usage:read", "audit:read", ACT, ANSWER})
"""Scopes that cover all users of a tenant. A key bound to a user cannot hold them."""
PLATFORM_SCOPES: Final = frozenset(
    {"queues:read", "queues:admin", "budgets:admin", "metrics:read", ACT_ACROSS}
)
"""Scopes that cover all tenants. Only a key of the platform's tenant can hold them."""
SCOPES: Final = DEFAULT_SCOPES | TENANT_SCOPES | PLATFORM_SCOPES | {KEYS}


class Role(StrEnum):
    """A name for a set of scopes. A key stores the scopes, not the role."""

    USER = "user"
    TENANT_OPERATOR = "tenant-operator"
    TENANT_ADMINISTRATOR = "tenant-administrator"
    PLATFORM_OPERATOR = "platform-operator"
    PLATFORM_ADMINISTRATOR = "platform-administrator"


_OPERATOR: Final = frozenset(
    {
        "jobs:read",
        "dead-letters:read",
        "dead-letters:retry",
        "webhooks:read",
        READ_TENANT,
        "usage:read",
    }
)
ROLES: Final[Mapping[Role, frozenset[str]]] = {
    Role.USER: DEFAULT_SCOPES,
    Role.TENANT_OPERATOR: _OPERATOR,
    Role.TENANT_ADMINISTRATOR: DEFAULT_SCOPES | TENANT_SCOPES | {KEYS},
    Role.PLATFORM_OPERATOR: _OPERATOR
    | {"audit:read", "queues:read", "queues:admin", "metrics:read", ACT_ACROSS},
    Role.PLATFORM_ADMINISTRATOR: SCOPES,
}


def role_of(scopes: frozenset[str]) -> Role | None:
    """Return the largest role whose scopes are all included in these."""
    held = [role for role, needed in ROLES.items() if needed <= scopes]
    return max(held, key=lambda role: len(ROLES[role]), default=None)


@dataclass(frozen=True, slots=True)
class Grant:
    """The permissions of a key."""

    tenant: str
    scopes: frozenset[str]
    user: str | None = None
    """The user that the key is bound to; `None` if it belongs to the whole tenant."""
    expires_at: Instant | None = None


def possible(tenant: str, user: str | None) -> frozenset[str]:
    """Return the scopes that a key of this tenant, bound to this user, can hold."""
    scopes = SCOPES
    if tenant != PLATFORM_TENANT:
        scopes -= PLATFORM_SCOPES
    if user is not None:
        scopes -= TENANT_SCOPES | PLATFORM_SCOPES
    return scopes


def impossible(grant: Grant) -> str | None:
    """Return why no key can hold these scopes; `None` if one can."""
    beyond = sorted(grant.scopes & SCOPES - possible(grant.tenant, grant.user))
    if not beyond:
        return None
    listed = ", ".join(beyond)
    if grant.user is not None:
        return f"a key bound to a user cannot have {listed}"
    return f"only a key of the tenant {PLATFORM_TENANT!r} can have {listed}"


def refusal(giver: Grant, wanted: Grant) -> str | None:
    """
    Return why a key may not create another; `None` if it may.

    A key cannot grant a scope, a user or a lifetime beyond its own.
    """
    reason = _beyond(giver, wanted)
    if reason is not None:
        return reason
    own = (None, giver.user or DEFAULT_USER)
    if wanted.user not in own and ACT not in giver.scopes:
        return f"creating a key for another user requires the scope {ACT}"
    ends, limit = wanted.expires_at, giver.expires_at
    if limit is not None and (ends is None or ends > limit):
        return (
            "a key cannot create a key that expires later than itself: set expires_at"
        )
    return None


def may_revoke(actor: Grant, key: Grant) -> bool:
    """Return whether a key may revoke another: it must hold all of its scopes."""
    return _beyond(actor, key) is None


def may_see(actor: Grant, key: Grant) -> bool:
    """Return whether a key may list another. A bound key sees only its user's keys."""
    return actor.user is None or actor.user == key.user


def _beyond(giver: Grant, wanted: Grant) -> str | None:
    if not may_see(giver, wanted):
        return "a key of a user can create and revoke only keys of that user"
    if not wanted.scopes <= giver.scopes:
        return "a key can grant only scopes that it has"
    return None


def visible(owner: Owner, scopes: frozenset[str]) -> Visibility:
    """Return which rows a caller sees: its own, or those of its whole tenant."""
    return Tenant(owner.tenant) if READ_TENANT in scopes else owner
