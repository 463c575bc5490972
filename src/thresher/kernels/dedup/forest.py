# SPDX-License-Identifier: Apache-2.0
"""Connected nodes of a range of numbers, by union-find: trees whose roots are their smallest nodes.

Nodes are counted from the start of the range. Neighbours before the range are not part of it: of these each tree
remembers the smallest one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import get, helper, kernel, put
from thresher.kernels.build.signatures import types

NOTHING = np.iinfo(np.uint64).max
"""No node."""
UNSEEN = -1
_PARENTS = types.Array(types.int32, 1, "C")
_NUMBERS, _OUT = types.Array(types.uint64, 1, "C", readonly=True), types.Array(types.uint64, 1, "C")

Numbers = npt.NDArray[np.uint64]


@helper
def _root(parents: Any, node: Any) -> Any:
    """Return the root of the tree of a node, which is made known to the nodes on the way."""
    if get(parents, node) < 0:
        put(parents, node, np.int32(node))
    while True:
        parent = np.int64(get(parents, node))
        if parent == node:
            return node
        above = get(parents, parent)
        put(parents, node, above)
        node = np.int64(above)


@kernel(types.void(_PARENTS, _OUT, _NUMBERS, _NUMBERS, types.int64))
def _join(parents: Any, lowest: Any, nodes: Any, others: Any, start: Any) -> None:
    start = np.uint64(start)
    for edge in range(len(nodes)):
        root = _root(parents, np.int64(get(nodes, edge) - start))
        other = get(others, edge)
        below = other
        if other >= start:
            second = _root(parents, np.int64(other - start))
            first = min(root, second)
            second = max(root, second)
            put(parents, second, np.int32(first))
            root, below = first, get(lowest, second)
        if below < get(lowest, root):
            put(lowest, root, below)


@kernel(types.int64(_PARENTS, _OUT, _NUMBERS, _NUMBERS, types.int64, _OUT, _OUT))
def _passed_on(
    parents: Any, lowest: Any, nodes: Any, others: Any, start: Any, made_nodes: Any, made_others: Any
) -> Any:
    start = np.uint64(start)
    made = 0
    for edge in range(len(nodes)):
        other = get(others, edge)
        if other < start:
            least = get(lowest, _root(parents, np.int64(get(nodes, edge) - start)))
            if other != least:
                put(made_nodes, made, other)
                put(made_others, made, least)
                made += 1
    return made


class Forest:
    """The trees of a range."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.parents = np.full(end - start, UNSEEN, dtype=np.int32)
        self.lowest = np.full(end - start, NOTHING, dtype=np.uint64)
        """The smallest neighbour before the range, of each root."""

    def join(self, nodes: Numbers, others: Numbers) -> None:
        """Add edges, each from a node of the range to a smaller one."""
        _join(self.parents, self.lowest, nodes, others, self.start)

    def passed_on(self, nodes: Numbers, others: Numbers) -> tuple[Numbers, Numbers]:
        """Return edges between nodes before the range that connect what `nodes` connect; all edges are joined."""
        made = np.empty((2, len(nodes)), dtype=np.uint64)
        count = _passed_on(self.parents, self.lowest, nodes, others, self.start, made[0], made[1])
        return made[0, :count], made[1, :count]

    def roots(self) -> tuple[Numbers, Numbers]:
        """Return all nodes that have an edge, and their roots."""
        nodes = np.flatnonzero(self.parents != UNSEEN)
        roots = self.parents[nodes]
        while len(deeper := np.flatnonzero(self.parents[roots] != roots)):
            roots[deeper] = self.parents[roots[deeper]]
        return nodes.astype(np.uint64) + np.uint64(self.start), roots.astype(np.uint64) + np.uint64(self.start)
