"""Graphs are put in order or refused; whoever was given up waits for a reason."""

from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.errors import InvalidInput
from backburner.domain.groups.flow import SHOWN, Edge, StepStatus, in_order, reopened
from backburner.domain.jobs.job import FINAL, JobState
from backburner.domain.jobs.transitions import DEPENDENCY_FAILED

SUCCEEDED, FAILED, CANCELLED = (
    JobState.SUCCEEDED,
    JobState.FAILED,
    JobState.CANCELLED,
)


ENDED = st.sampled_from([SUCCEEDED, FAILED])


@st.composite
def graphs(draw):
    """Steps and whatever each needs, circles included."""
    names = draw(st.lists(st.text("abcd", min_size=1, max_size=3), unique=True))
    some = st.lists(st.sampled_from(names), unique=True, max_size=3) if names else None
    return {name: [Edge(other) for other in draw(some)] for name in names}


@st.composite
def flows(draw, *, ended=ENDED):
    """Steps by key, each needing some before it: what each does, and its needs."""
    size = draw(st.integers(0, 12))
    return [
        (
            draw(ended),
            [
                (other, draw(st.booleans()))
                for other in range(here)
                if draw(st.integers(0, 2)) == 0
            ],
        )
        for here in range(size)
    ]


def has_circle(graph):
    sorter = TopologicalSorter({n: [e.step for e in es] for n, es in graph.items()})
    try:
        sorter.prepare()
    except CycleError:
        return True
    return False


def run_through(flow, states):
    """Run what is open as the engine does: a step whose need failed is given up."""
    for here, (ends, needs) in enumerate(flow):
        if states.get(here) not in FINAL:
            unmet = any(states[n] is not SUCCEEDED and not go for n, go in needs)
            states[here] = CANCELLED if unmet else ends
    return states


def standings(flow, states):
    return [
        StepStatus(
            here,
            states[here],
            DEPENDENCY_FAILED if states[here] is CANCELLED else None,
            0,
            needs,
        )
        for here, (_, needs) in enumerate(flow)
    ]


@given(graphs())
def test_every_step_comes_once_and_after_what_it_needs_or_there_is_a_circle(graph):
    try:
        order = in_order(graph)
    except InvalidInput as refused:
        [told] = refused.fields
        circle = told.message.removesuffix(" is a cycle").split(" → ")
        assert has_circle(graph)
        assert circle[0] == circle[-1]
        if len(circle) < SHOWN:
            assert all(
                before in {edge.step for edge in graph[after]}
                for before, after in pairwise(circle)
            )
        return

    assert not has_circle(graph)
    assert sorted(graph) == sorted(order)
    place = {name: number for number, name in enumerate(order)}
    assert all(place[edge.step] < place[name] for name in graph for edge in graph[name])


def test_a_circle_of_thousands_is_told_in_a_line():
    names = [f"step-{number}" for number in range(10_000)]
    ring = {name: [Edge(names[n - 1])] for n, name in enumerate(names)}

    with pytest.raises(InvalidInput) as refused:
        in_order(ring)

    assert len(refused.value.fields[0].message) < 200


@pytest.mark.parametrize(
    ("needs", "told"),
    [
        (["b"], "needs 'b': no such step"),
        (["a"], "a → a is a cycle"),
        (["c", "c"], "needs 'c' twice"),
    ],
)
def test_what_a_step_cannot_need_is_told(needs, told):
    steps = {"a": [Edge(name) for name in needs], "c": []}

    with pytest.raises(InvalidInput) as refused:
        in_order(steps)

    assert [told] == [field.message for field in refused.value.fields]


@given(flows(), st.data())
def test_a_step_waits_again_if_and_only_if_what_it_needs_may_still_come(flow, data):
    states = run_through(flow, {})
    failed = [here for here, state in states.items() if state is FAILED]
    retried = data.draw(st.sets(st.sampled_from(failed)) if failed else st.just(set()))
    opening = reopened(retried, standings(flow, states))
    again = opening.again

    open_ = {*opening.retried, *again}
    for here, (_, needs) in enumerate(flow):
        may_run = all(
            go or n in open_ or states[n] is SUCCEEDED for n, go in needs
        ) and any(n in open_ for n, _ in needs)
        is_back = states[here] is CANCELLED and may_run
        assert is_back == (here in again)
        if is_back:
            assert opening.open[here] == sum(n in open_ for n, _ in needs)


@given(flows())
def test_when_all_that_failed_is_retried_and_succeeds_everything_does(flow):
    states = run_through(flow, {})
    failed = [here for here, state in states.items() if state is FAILED]
    again = reopened(failed, standings(flow, states)).again
    states |= dict.fromkeys([*failed, *again], JobState.QUEUED)
    better = [(SUCCEEDED, needs) for _, needs in flow]

    assert {SUCCEEDED} >= set(run_through(better, states).values())


@given(flows())
def test_what_nobody_retries_stays_as_it_is(flow):
    opening = reopened([], standings(flow, run_through(flow, {})))

    assert not any(opening)
