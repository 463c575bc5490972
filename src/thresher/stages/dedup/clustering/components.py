# SPDX-License-Identifier: Apache-2.0
"""Connected components of a graph whose edges do not fit into memory.

Ranges of nodes are looked at one by one, the last one first, so that every edge is met in the range of its larger node.
There the nodes of the range are joined, and what is connected through them is passed on: if a tree has neighbours
before the range, these are joined to the smallest of them by edges that earlier ranges will meet. So an edge becomes at
most one other, and a range is all that is in memory. Then the ranges are gone through again, the first one first: each
tree has the root of its smallest neighbour, which is known by then.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thresher.kernels.dedup.forest import NOTHING, Forest
from thresher.stages.dedup.clustering.exchange import Exchange
from thresher.stages.dedup.files.keys import Edges, Numbers


def components(edges: Exchange) -> Exchange:
    """Return the smallest node of the component (`root`) of each node (`node`) that has an edge, by node.

    The edges are taken away.
    """
    trees, asked = _joined(edges)
    edges.remove()
    found = _answered(trees, asked)
    trees.remove()
    asked.remove()
    return found


def add_edges(exchange: Exchange, edges: Edges) -> None:
    """Add edges, each from a node to a smaller one."""
    exchange.add("node", node=edges[:, 0], to=edges[:, 1])


def _joined(edges: Exchange) -> tuple[Exchange, Exchange]:
    """Return the root of each node within its range; and for each of these roots that has neighbours before the range
    (`tree`), the smallest of them (`node`)."""
    buckets = edges.buckets
    trees, asked = buckets.exchange(), buckets.exchange()
    for bucket in reversed(range(buckets.count)):
        forest = Forest(*buckets.bounds(bucket))
        for part in edges.read(bucket):
            forest.join(part["node"], part["to"])
        for part in edges.read(bucket) if bucket else ():
            nodes, others = forest.passed_on(part["node"], part["to"])
            edges.add("node", node=nodes, to=others)
        nodes, roots = forest.roots()
        trees.add("node", node=nodes, root=roots)
        below = np.flatnonzero(forest.lowest != NOTHING)
        below = below[forest.parents[below] == below]
        asked.add("node", node=forest.lowest[below], tree=below.astype(np.uint64) + np.uint64(forest.start))
        edges.discard(bucket)
    return trees, asked


def _answered(trees: Exchange, asked: Exchange) -> Exchange:
    """Return the root of each node, given those within its range, and what these depend on."""
    buckets = trees.buckets
    found, answers = buckets.exchange(), buckets.exchange()
    for bucket in range(buckets.count):
        low, high = buckets.bounds(bucket)
        start = np.uint64(low)
        root_of = np.arange(low, high, dtype=np.uint64)
        is_node = np.zeros(high - low, dtype=np.bool_)
        for part in answers.read(bucket):
            root_of[_places(part["node"], start)] = part["root"]
        answers.discard(bucket)
        for part in trees.read(bucket):
            nodes = _places(part["node"], start)
            root_of[nodes] = root_of[_places(part["root"], start)]  # a root is its own, and is there only once
            is_node[nodes] = True
        for part in asked.read(bucket):
            nodes = _places(part["node"], start)
            is_node[nodes] = True
            answers.add("node", node=part["tree"], root=root_of[nodes])
        nodes = np.flatnonzero(is_node)
        found.add("node", node=nodes.astype(np.uint64) + start, root=root_of[nodes])
    answers.remove()
    return found


def _places(numbers: Numbers, start: np.uint64) -> npt.NDArray[np.int64]:
    return np.asarray((numbers - start).astype(np.int64))
