"""Which scopes a key can hold, and what one key may give to another."""

import pytest

from backburner.domain.auth.access import (
    ACT,
    DEFAULT_SCOPES,
    PLATFORM_SCOPES,
    PLATFORM_TENANT,
    ROLES,
    SCOPES,
    TENANT_SCOPES,
    Grant,
    Role,
    impossible,
    may_revoke,
    may_see,
    possible,
    refusal,
    visible,
)
from backburner.domain.auth.key import ApiKey
from backburner.domain.costs.budget import Budget
from backburner.domain.jobs.job import Owner, Tenant

ALL = possible("acme", None)
KEYS = frozenset({"keys:admin", "jobs:read"})
ANN, BOB = Owner("acme", "ann"), Owner("acme", "bob")


def test_a_tenants_key_can_hold_no_platform_scope():
    assert SCOPES - PLATFORM_SCOPES == ALL
    assert SCOPES == possible(PLATFORM_TENANT, None)


def test_a_key_of_one_user_can_hold_no_scope_that_reaches_others():
    expected = DEFAULT_SCOPES | {"keys:admin"}

    assert expected == possible("acme", "ann") == possible(PLATFORM_TENANT, "ann")


@pytest.mark.parametrize("scope", sorted(PLATFORM_SCOPES))
def test_a_platform_scope_is_for_the_platforms_tenant_only(scope):
    told = impossible(Grant("acme", frozenset({scope})))

    assert told == f"only a key of the tenant 'default' can have {scope}"
    assert impossible(Grant(PLATFORM_TENANT, frozenset({scope}))) is None


@pytest.mark.parametrize("scope", sorted(TENANT_SCOPES))
def test_a_tenants_scope_is_not_for_a_key_of_one_user(scope):
    told = impossible(Grant("acme", frozenset({scope}), "ann"))

    assert told == f"a key bound to a user cannot have {scope}"
    assert impossible(Grant("acme", frozenset({scope}))) is None


def test_a_key_that_was_made_with_more_than_it_can_hold_has_less():
    made = {"tenant": "acme", "digest": "", "created_at": 0, "scopes": SCOPES}
    bound = ApiKey(id="a", name="a", user="ann", **made)
    free = ApiKey(id="b", name="b", user=None, **made)

    assert possible("acme", "ann") == bound.grant.scopes
    assert ALL == free.grant.scopes


@pytest.mark.parametrize("role", Role)
def test_every_role_is_a_set_of_scopes_that_a_key_can_hold(role):
    tenant = PLATFORM_TENANT if role.startswith("platform") else "acme"

    assert impossible(Grant(tenant, ROLES[role])) is None
    assert ROLES[role] <= SCOPES


def test_only_a_users_role_fits_a_key_of_one_user():
    fitting = [role for role in Role if ROLES[role] <= possible("acme", "ann")]

    assert [Role.USER] == fitting


@pytest.mark.parametrize(
    ("giver", "wanted", "reason"),
    [
        (Grant("acme", KEYS), Grant("acme", KEYS), None),
        (Grant("acme", KEYS), Grant("acme", KEYS, "1"), None),
        (Grant("acme", KEYS), Grant("acme", KEYS, "ann"), "users:act"),
        (Grant("acme", KEYS | {ACT}), Grant("acme", KEYS, "ann"), None),
        (Grant("acme", KEYS), Grant("acme", ALL), "scopes"),
        (Grant("acme", KEYS, "ann"), Grant("acme", KEYS, "ann"), None),
        (Grant("acme", KEYS, "ann"), Grant("acme", KEYS, "bob"), "of that user"),
        (Grant("acme", KEYS, "ann"), Grant("acme", KEYS), "of that user"),
        (Grant("acme", KEYS, None, 9), Grant("acme", KEYS, None, 9), None),
        (Grant("acme", KEYS, None, 9), Grant("acme", KEYS, None, 10), "expires later"),
        (Grant("acme", KEYS, None, 9), Grant("acme", KEYS), "expires later"),
        (Grant("acme", KEYS), Grant("acme", KEYS, None, 10), None),
    ],
)
def test_nobody_gives_more_than_they_have(giver, wanted, reason):
    told = refusal(giver, wanted)

    assert (told is None) is (reason is None)
    assert reason is None or reason in told


def test_a_key_revokes_keys_of_users_that_it_cannot_act_as():
    assert may_revoke(Grant("acme", KEYS), Grant("acme", KEYS, "ann"))


def test_a_key_revokes_what_it_could_have_given_however_long_that_lasts():
    actor = Grant("acme", KEYS, "ann", expires_at=9)

    assert may_revoke(actor, Grant("acme", KEYS, "ann"))
    assert not may_revoke(actor, Grant("acme", ALL, "ann"))
    assert not may_revoke(actor, Grant("acme", KEYS, "bob"))
    assert not may_see(actor, Grant("acme", KEYS, "bob"))
    assert not may_see(actor, Grant("acme", KEYS))


def test_tenant_read_shows_every_user_of_one_tenant():
    seen = visible(ANN, ROLES[Role.TENANT_OPERATOR])
    own = visible(ANN, ROLES[Role.USER])

    assert Tenant("acme") == seen
    assert [True, True, False] == [
        seen.covers(owner) for owner in (ANN, BOB, Owner("other", "ann"))
    ]
    assert [True, False, False] == [
        own.covers(owner) for owner in (ANN, BOB, Owner("other", "ann"))
    ]


@pytest.mark.parametrize(
    ("scope", "of", "tenant"),
    [
        ("tenant", "acme", "acme"),
        ("tenant", None, None),
        ("user", "acme/ann", "acme"),
        ("user", "a/b/c", None),
        ("user", None, None),
        ("capability", "echo", None),
        ("key", "abc", None),
    ],
)
def test_a_budget_says_whose_it_is_where_it_can(scope, of, tenant):
    assert tenant == Budget(scope, tokens=1, of=of).tenant
