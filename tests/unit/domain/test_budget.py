"""The arithmetic of budgets: whatever happens in whatever order, it adds up."""

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.costs.budget import (
    Account,
    Balance,
    Budget,
    Charge,
    Kind,
    Posting,
    Rules,
    actual,
    admit,
    budget_of,
    post,
    replay,
    scopes_of,
    settle,
    window_start,
)
from backburner.domain.errors import BudgetExhausted, ConfigurationError
from backburner.domain.jobs.job import Owner
from backburner.testing.samples import NOON, a_new_job

DAY = 86_400_000
LIMIT = 100

amounts = st.integers(0, 150)
accounts = st.sampled_from(
    [Account("user", "tokens", DAY, "acme", f"acme/{name}", 0) for name in "ab"]
)
acts = st.one_of(
    st.tuples(st.just("reserve"), st.lists(st.tuples(accounts, amounts), max_size=3)),
    st.tuples(st.just("settle"), st.integers(0, 20), amounts),
    st.tuples(st.just("release"), st.integers(0, 20)),
)


class Book:
    """Accounts in memory, kept by the rules under test."""

    def __init__(self):
        self.balances = {}
        self.entries = {}
        self.holds = []

    def post(self, account, posting):
        self.entries.setdefault(account, []).append(posting)
        before = self.balances.get(account, Balance())
        self.balances[account] = post(before, posting)

    def reserve(self, wanted):
        charges = [Charge(account, LIMIT, amount) for account, amount in wanted]
        before = dict(self.balances)
        try:
            after = before | admit(self.balances, charges, NOON)
        except BudgetExhausted:
            assert before == self.balances, "who is refused leaves no trace"
            return
        for account, _, amount in charges:
            self.holds.append((account, amount))
            self.post(account, Posting(Kind.RESERVED, amount))
        assert after == self.balances, "what is held is what was judged"

    def close(self, place, used):
        if self.holds:
            account, held = self.holds.pop(place % len(self.holds))
            for posting in settle(held, used):
                self.post(account, posting)


@given(st.lists(acts, max_size=60))
def test_whatever_happens_admission_stays_within_the_limit_and_all_adds_up(happened):
    book = Book()
    for act, *said in happened:
        if act == "reserve":
            book.reserve(*said)
        elif act == "settle":
            book.close(*said)
        else:
            book.close(*said, 0)
        for account, balance in book.balances.items():
            held = sum(amount for held, amount in book.holds if held == account)
            assert balance.admitted <= LIMIT
            assert min(balance) >= 0
            assert held == balance.held
            assert replay(book.entries[account]) == balance
    while book.holds:
        book.close(0, 0)
    assert {0} >= {balance.held for balance in book.balances.values()}


@given(held=amounts, used=amounts)
def test_a_hold_is_given_back_to_the_last_token(held, used):
    told = settle(held, used)
    balance = replay([Posting(Kind.RESERVED, held), *told])

    assert Balance(0, used, max(0, used - held)) == balance
    assert all(posting.amount > 0 for posting in told)


@given(now=st.integers(0, 2**53), per=st.integers(1_000, DAY))
def test_a_window_begins_at_a_whole_multiple_of_its_length(now, per):
    start = window_start(now, per)

    assert 0 == start % per
    assert start <= now < start + per


@pytest.mark.parametrize(
    ("told", "succeeded", "expected"),
    [
        ((0, 0, 0), True, (40, True)),
        ((0, 0, 0), False, (0, False)),
        ((2, 25, 0), True, (25, False)),
        ((2, 25, 0), False, (25, False)),
        ((2, 25, 1), False, (40, True)),
        ((2, 55, 1), True, (55, True)),
    ],
)
def test_what_is_settled_is_what_was_told_or_else_an_estimate(
    told, succeeded, expected
):
    assert expected == actual(40, *told, succeeded=succeeded)


def test_a_job_is_counted_by_whose_it_is_and_what_it_does():
    job = a_new_job(model="m", flow=7, key="key_1")

    assert [
        ("tenant", "acme", "acme"),
        ("user", "acme", "acme/ann"),
        ("key", "acme", "key_1"),
        ("capability", "", "greet"),
        ("model", "", "m"),
        ("flow", "acme", "7"),
    ] == scopes_of(job)
    assert 3 == len(scopes_of(a_new_job()))


def test_names_that_look_alike_are_different_accounts():
    rules = Rules([Budget("user", tokens=1)])
    [one] = rules.charges(a_new_job(owner=Owner("a/b", "c")), NOON)
    [other] = rules.charges(a_new_job(owner=Owner("a", "b/c")), NOON)

    assert one.account.value == other.account.value
    assert one.account != other.account


def test_two_windows_of_one_scope_are_two_budgets():
    hour = timedelta(hours=1)
    rules = Rules([Budget("user", tokens=9), Budget("user", tokens=1, per=hour)])

    charges = rules.charges(a_new_job(tokens=1), NOON)

    assert [(DAY, 9), (3_600_000, 1)] == [(c.account.per, c.limit) for c in charges]


@pytest.mark.parametrize(
    "said",
    [
        {"scope": "planet", "tokens": 1},
        {"scope": "user"},
        {"scope": "user", "tokens": 1, "money": Decimal(1)},
        {"scope": "user", "tokens": -1},
        {"scope": "user", "tokens": 1, "per": timedelta(milliseconds=1)},
        {"scope": "user", "tokens": 1, "of": ""},
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_at_once(said):
    with pytest.raises(ConfigurationError):
        Budget(**said)


@pytest.mark.parametrize(
    "budget", [Budget("user", tokens=7), Budget("key", money=Decimal("0.5"), of="k")]
)
def test_a_budget_is_the_same_after_it_was_stored(budget):
    parts = budget.scope, budget.unit, budget.limit, budget.window, budget.of

    assert budget == budget_of(*parts)


def test_a_refusal_says_what_is_left_and_when_the_window_ends():
    account = Account("user", "tokens", DAY, "acme", "acme/ann", NOON)
    charge = Charge(account, LIMIT, 60)

    with pytest.raises(BudgetExhausted) as refused:
        admit({account: Balance(held=50)}, [charge], NOON + DAY - 1_500)

    told = refused.value
    assert ("user", 100, 50, 2) == (
        told.scope,
        told.limit,
        told.left,
        told.retry_after,
    )
