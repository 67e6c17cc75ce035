"""
The graph of a flow in few nodes: steps that are alike share one.

It depends only on what the steps are and need, never on their states. First only steps
with the same capability and the same prerequisites share a node, then those of a layer
with one capability, then those of several layers.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple

FAN: Final = 8
"""So many alike steps share a node."""
MOST_NODES: Final = 160
MOST_EDGES: Final = 800
BANDS: Final = 40


class OutlinedStep(NamedTuple):
    """What the graph needs to know of a step."""

    seq: int
    capability: str
    state: str
    needs: Sequence[tuple[int, bool]] = ()
    """Its prerequisites, and whether it runs even if they do not succeed."""


class Node(NamedTuple):
    """Steps that are shown together, in their order."""

    layer: int
    """How many nodes are before it on the longest path."""
    steps: Sequence[OutlinedStep]


class Link(NamedTuple):
    """Steps of one node need steps of another one; by their places in the graph."""

    source: int
    target: int
    continues: bool
    """Whether all of these steps run even if their prerequisites do not succeed."""


class Graph(NamedTuple):
    """A graph of bounded size."""

    nodes: Sequence[Node]
    links: Sequence[Link]


class DrawnGraph:
    """The nodes of a flow's steps, whatever the states of these are."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = [
            (node.layer, [step.seq for step in node.steps]) for node in graph.nodes
        ]
        self._links = graph.links
        self._size = sum(len(node.steps) for node in graph.nodes)

    def shows(self, steps: Sequence[OutlinedStep]) -> bool:
        """Return whether these are its steps: steps are only ever added to a flow."""
        return len(steps) == self._size

    def of(self, steps: Sequence[OutlinedStep]) -> Graph:
        """Return the graph with its steps as they are now."""
        now = {step.seq: step for step in steps}
        nodes = [Node(layer, [now[seq] for seq in seqs]) for layer, seqs in self._nodes]
        return Graph(nodes, self._links)


Layers = Sequence[Sequence[OutlinedStep]]
Places = dict[int, int]
"""The place of the node of each step."""
Key = Callable[[OutlinedStep, Places], Hashable]


def drawn(steps: Iterable[OutlinedStep]) -> Graph:
    """Return the graph of steps that are in an order in which they can run."""
    layers = _layers(steps)
    for key, many in ((_alike, FAN), (_by_capability, 2)):
        graph = _grouped(layers, key, many)
        if len(graph.nodes) <= MOST_NODES and len(graph.links) <= MOST_EDGES:
            return graph
    return _grouped(_bands(layers), lambda _step, _places: None, 2)


def _layers(steps: Iterable[OutlinedStep]) -> Layers:
    """Deal steps out to layers: each behind the last of what it needs."""
    depths: dict[int, int] = {}
    layers: list[list[OutlinedStep]] = []
    for step in steps:
        # A handler may have added a prerequisite behind this step: it counts as none.
        at = max((depths.get(need, -1) + 1 for need, _ in step.needs), default=0)
        depths[step.seq] = at
        if at == len(layers):
            layers.append([])
        layers[at].append(step)
    return layers


def _bands(layers: Layers) -> Layers:
    """Join neighbouring layers so that few remain."""
    size = -(-len(layers) // BANDS)
    return [
        [step for layer in layers[first : first + size] for step in layer]
        for first in range(0, len(layers), size)
    ]


def _alike(step: OutlinedStep, places: Places) -> Hashable:
    needs = {places[need] for need, _ in step.needs if need in places}
    return step.capability, frozenset(needs)


def _by_capability(step: OutlinedStep, _places: Places) -> Hashable:
    return step.capability


def _grouped(layers: Layers, key: Key, many: int) -> Graph:
    """Make nodes of each layer: one for `many` or more steps with a key, else each."""
    nodes: list[Node] = []
    places: Places = {}
    for at, layer in enumerate(layers):
        groups: dict[Hashable, list[OutlinedStep]] = {}
        for step in layer:
            groups.setdefault(key(step, places), []).append(step)
        for group in groups.values():
            for some in [group] if len(group) >= many else [[one] for one in group]:
                places.update((step.seq, len(nodes)) for step in some)
                nodes.append(Node(at, some))
    return Graph(nodes, _links(nodes, places))


def _links(nodes: Sequence[Node], places: Places) -> Sequence[Link]:
    found: dict[tuple[int, int], bool] = {}
    for target, node in enumerate(nodes):
        for step in node.steps:
            for need, continues in step.needs:
                source = places.get(need)
                if source is not None and source != target:
                    pair = source, target
                    found[pair] = found.get(pair, True) and continues
    return [Link(*pair, continues) for pair, continues in found.items()]
