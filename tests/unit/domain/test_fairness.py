"""Shares of a line, told by what they were served."""

from collections import Counter, deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.errors import ConfigurationError
from backburner.domain.jobs.job import Owner
from backburner.domain.queues.fairness import (
    MAX_COST,
    MAX_WEIGHT,
    UNIT,
    Share,
    by_share,
    correction,
    cost,
    costs,
    ranks,
    span,
    take,
)
from backburner.domain.queues.queue import Queue
from backburner.testing.samples import a_new_job

NAMES = ("ann", "bob", "cat")
TOKENS = st.integers(1, 2 * MAX_COST) | st.integers(1, 5)
WEIGHTS = st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(1, MAX_WEIGHT)))


def share(name):
    return Share("default", 0, "acme", name)


@dataclass
class Model:
    """A line as the stores keep it."""

    weights: dict = field(default_factory=dict)
    front: int = 0
    finishes: dict = field(default_factory=dict)
    waiting: list = field(default_factory=list)
    served: Counter = field(default_factory=Counter)
    largest: int = 1

    def submit(self, name, *tokens):
        jobs = [a_new_job(owner=Owner("acme", name), tokens=t) for t in tokens]
        shares = by_share(jobs)
        places = {}
        for key, total in costs(jobs, shares).items():
            size = span(total, self.weights.get(name, 1))
            places[key] = take(self.front, self.finishes.get(key), size)
            self.finishes[key] = places[key].finish
        for job, rank in zip(jobs, ranks(jobs, shares, places), strict=True):
            self.waiting.append((rank, len(self.waiting), name, job))
            self.largest = max(self.largest, cost(job.tokens))
        self.waiting.sort(key=lambda entry: entry[:2])
        return [rank for rank, _, owner, _ in self.waiting if owner == name]

    def claim(self):
        rank, _, name, job = self.waiting.pop(0)
        self.front = max(self.front, rank)
        self.served[name] += cost(job.tokens)
        return name

    def has(self, name):
        return any(owner == name for _, _, owner, _ in self.waiting)

    def lag(self, one, other):
        """Return how far apart two were served, by weight, in units of a cost of 1."""
        by_weight = [self.served[n] / self.weights.get(n, 1) for n in (one, other)]
        return abs(by_weight[0] - by_weight[1])


@given(WEIGHTS, st.lists(TOKENS, min_size=1, max_size=30), st.integers(1, 9))
def test_a_share_is_served_in_the_order_it_asked(weights, tokens, size):
    model = Model(weights)
    asked = [tokens[i : i + size] for i in range(0, len(tokens), size)]
    for group in asked:
        model.submit("ann", *group)

    found = [rank for rank, *_ in model.waiting]
    assert sorted(set(found)) == found, "no two have one rank"
    served = [cost(job.tokens) for *_, job in model.waiting]
    assert [cost(t) for t in tokens] == served


@given(
    WEIGHTS,
    st.lists(TOKENS, min_size=1, max_size=40),
    st.lists(TOKENS, min_size=1, max_size=40),
)
def test_two_that_wait_never_drift_apart(weights, anns, bobs):
    model = Model(weights)
    model.submit("ann", *anns)
    model.submit("bob", *bobs)
    bound = sum(model.largest / weights[name] for name in ("ann", "bob"))
    while model.has("ann") and model.has("bob"):
        model.claim()

        assert model.lag("ann", "bob") <= bound + 2 / UNIT


@given(
    st.integers(1, 30),
    st.integers(0, 30),
    st.lists(st.sampled_from(NAMES), max_size=20),
)
def test_who_was_away_has_no_credit(alone, claimed, others):
    model = Model()
    model.submit("ann", *[1] * alone)
    for _ in range(min(alone, claimed)):
        model.claim()
    for name in others:
        model.submit(name, 1)
    begun = Counter(model.served)
    model.submit("cat", *[1] * 50)
    model.submit("ann", *[1] * 50)
    while model.has("ann") and model.has("cat"):
        model.claim()

    gained = {name: model.served[name] - begun[name] for name in ("ann", "cat")}
    assert abs(gained["cat"] - gained["ann"]) <= 2, "one job each, whoever came first"


@given(st.lists(st.tuples(st.sampled_from(NAMES), TOKENS), max_size=40), st.data())
def test_nobody_begins_before_the_front_and_it_never_goes_back(asked, data):
    model, todo = Model(), deque(asked)
    while todo:
        before = model.front
        if model.waiting and data.draw(st.booleans()):
            model.claim()
        else:
            name, tokens = todo.popleft()
            assert model.front <= model.submit(name, tokens)[-1]
        assert before <= model.front
        assert all(
            finish <= sum(span(cost(t), 1) for _, t in asked)
            for finish in model.finishes.values()
        ), "virtual time is spent by work alone"


@given(TOKENS, st.integers(1, MAX_WEIGHT))
def test_what_is_given_back_is_what_was_taken(tokens, weight):
    size = span(cost(tokens), weight)

    assert 0 < size == -span(-cost(tokens), weight)
    assert size * weight >= cost(tokens) * UNIT > (size - 1) * weight


@pytest.mark.parametrize(
    ("tokens", "expected"), [(None, 1), (0, 1), (7, 7), (MAX_COST + 1, MAX_COST)]
)
def test_a_job_counts_by_its_tokens_within_bounds(tokens, expected):
    assert expected == cost(tokens)


@pytest.mark.parametrize(
    ("used", "is_over", "expected"),
    [(500, True, 400), (20, True, -80), (20, False, 20)],
)
def test_attempts_pay_what_they_used_and_the_last_gets_the_estimate_back(
    used, is_over, expected
):
    assert expected == correction(100, used, is_over=is_over)


@pytest.mark.parametrize("weight", [0, -1, MAX_WEIGHT + 1])
def test_a_weight_has_bounds(weight):
    with pytest.raises(ConfigurationError, match="weight"):
        Queue("default", weights={"ann": weight})


def test_a_cap_is_at_least_one():
    with pytest.raises(ConfigurationError, match="limit"):
        Queue("default", waiting=0)
