"""The graph of a flow: few nodes, whatever its size."""

from itertools import combinations, pairwise

from backburner.domain.groups.graph import (
    BANDS,
    FAN,
    MOST_EDGES,
    MOST_NODES,
    DrawnGraph,
    Link,
    OutlinedStep,
    drawn,
)


def a_step(seq, *needs, capability="read", state="queued", lax=()):
    return OutlinedStep(seq, capability, state, [(n, n in lax) for n in needs])


def shapes(graph):
    """Return for each node its layer and the numbers of its steps."""
    return [(node.layer, [step.seq for step in node.steps]) for node in graph.nodes]


def test_each_of_a_few_steps_has_a_node_and_its_links():
    graph = drawn([a_step(1), a_step(2, 1), a_step(3, 1, 2, lax=[1])])

    assert [(0, [1]), (1, [2]), (2, [3])] == shapes(graph)
    assert [Link(0, 1, False), Link(0, 2, True), Link(1, 2, False)] == graph.links


def test_steps_that_are_alike_share_a_node_if_they_are_many():
    pages = range(2, 2 + FAN)
    others = range(20, 20 + FAN - 1)
    graph = drawn(
        [
            a_step(1),
            *(a_step(page, 1) for page in pages),
            *(a_step(other, 1, capability="write") for other in others),
            a_step(40, *pages, *others),
        ]
    )

    alone = [(1, [other]) for other in others]
    assert [(0, [1]), (1, [*pages]), *alone, (2, [40])] == shapes(graph)
    assert {(0, 1), (1, FAN + 1)} <= {link[:2] for link in graph.links}


def test_a_link_goes_on_only_if_all_of_its_steps_do():
    pages = range(2, 2 + FAN)
    steps = [a_step(1), *(a_step(page, 1, lax=[1]) for page in pages)]
    lax = drawn(steps)
    strict = drawn([*steps, a_step(50, 1)])

    assert [Link(0, 1, True)] == lax.links
    assert [Link(0, 1, False)] == strict.links


def test_a_large_graph_has_a_node_for_each_capability_of_a_layer():
    begun = [a_step(seq, capability=f"c{seq}") for seq in range(20)]
    pairs = enumerate(combinations(range(20), 2), 100)
    graph = drawn([*begun, *(a_step(seq, *pair) for seq, pair in pairs)])

    assert [*((0, 1) for _ in begun), (1, 190)] == [
        (layer, len(steps)) for layer, steps in shapes(graph)
    ]


def test_a_long_chain_is_cut_into_bands():
    steps = [a_step(1), *(a_step(b, a) for a, b in pairwise(range(1, 10_001)))]
    graph = drawn(steps)

    assert BANDS == len(graph.nodes)
    assert 10_000 == sum(len(node.steps) for node in graph.nodes)
    assert [(n, n + 1) for n in range(BANDS - 1)] == [link[:2] for link in graph.links]


def test_a_graph_stays_bounded_however_steps_depend_on_each_other():
    steps = [
        a_step(
            100 * layer + place,
            *(100 * layer - 100 + (place + k) % 100 for k in range(9) if layer),
            capability=f"c{place}",
        )
        for layer in range(100)
        for place in range(100)
    ]
    graph = drawn(steps)

    assert MOST_NODES >= len(graph.nodes)
    assert MOST_EDGES >= len(graph.links)


def test_a_prerequisite_that_a_handler_added_later_is_no_obstacle():
    graph = drawn([a_step(1), a_step(2, 1, 3), a_step(3)])

    assert [(0, [1]), (0, [3]), (1, [2])] == sorted(shapes(graph))


def test_a_drawn_graph_shows_the_states_of_now_until_steps_are_added():
    drawn_graph = DrawnGraph(drawn([a_step(1), a_step(2, 1)]))
    later = [a_step(1, state="succeeded"), a_step(2, state="running")]
    graph = drawn_graph.of(later)

    assert [["succeeded"], ["running"]] == [
        [step.state for step in node.steps] for node in graph.nodes
    ]
    assert [Link(0, 1, False)] == graph.links
    assert drawn_graph.shows(later)
    assert not drawn_graph.shows([*later, a_step(3)])


def test_a_flow_without_steps_has_an_empty_graph():
    assert ((), ()) == tuple(map(tuple, drawn([])))
