# SPDX-License-Identifier: Apache-2.0
"""Components of a graph are found whatever part of it is in memory at a time."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.stages.dedup.clustering.components import add_edges, components
from thresher.stages.dedup.clustering.exchange import Buckets

NODES = 40


def expected(edges: list[tuple[int, int]]) -> dict[int, int]:
    """The smallest node of the component of each node that has an edge."""
    root = {node: node for edge in edges for node in edge}
    for _ in root:
        for one, other in edges:
            root[one] = root[other] = min(root[one], root[other])
    return root


def found(edges: list[tuple[int, int]], nodes: int, per_bucket: int, folder: str) -> dict[int, int]:
    buckets = Buckets(nodes, per_bucket, folder)
    stars = buckets.exchange()
    for start in range(0, len(edges), 3):
        add_edges(stars, np.array(edges[start : start + 3], dtype=np.uint64))
    labels = components(stars)
    result: dict[int, int] = {}
    for bucket in range(buckets.count):
        for part in labels.read(bucket):
            for node, root in zip(part["node"].tolist(), part["root"].tolist(), strict=True):
                assert node not in result, "each node is there once"
                result[node] = root
    buckets.remove()
    return result


@given(
    st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=60),
    st.sampled_from([1, 3, 7, NODES]),
)
def test_every_node_gets_the_smallest_node_of_its_component(pairs: list[tuple[int, int]], per_bucket: int) -> None:
    edges = [(max(pair), min(pair)) for pair in pairs if pair[0] != pair[1]]
    with tempfile.TemporaryDirectory() as folder:
        assert found(edges, NODES, per_bucket, folder) == expected(edges)


@pytest.mark.parametrize("per_bucket", [50, 1000])
def test_a_long_chain_and_a_wide_star(tmp_path: object, per_bucket: int) -> None:
    chain = [(node + 1, node) for node in range(499)]
    star = [(node, 500) for node in range(501, 1000)]
    labels = found([*chain, *star], 1000, per_bucket, str(tmp_path))
    assert labels == dict.fromkeys(range(500), 0) | dict.fromkeys(range(500, 1000), 500)


def test_nothing_is_left_on_disk(tmp_path: object) -> None:
    folder = os.path.join(str(tmp_path), "scratch")
    found([(5, 1), (9, 5)], 10, 2, folder)
    assert not os.path.exists(folder)


@pytest.mark.parametrize("held", [0, 1 << 20])
@pytest.mark.parametrize("per_bucket", [7, 1000])
def test_rows_may_be_added_while_others_are_read(tmp_path: object, per_bucket: int, held: int) -> None:
    buckets = Buckets(100, per_bucket, str(tmp_path))
    buckets.held_bytes = held
    rows = buckets.exchange()
    everything = np.arange(100, dtype=np.uint64)
    rows.add("node", node=everything)
    rows.add("node", node=everything)
    found: list[int] = []
    for bucket in reversed(range(buckets.count)):
        for part in rows.read(bucket):
            found += part["node"].tolist()
            rows.add("node", node=part["node"][:1])
        assert sum(len(part["node"]) for part in rows.read(bucket)) > 2 * len(range(*buckets.bounds(bucket)))
        rows.discard(bucket)
        assert list(rows.read(bucket)) == []
    assert sorted(found) == sorted([*range(100), *range(100)])
    rows.remove()
