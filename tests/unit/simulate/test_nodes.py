# SPDX-License-Identifier: Apache-2.0
"""Machines as people write them."""

from __future__ import annotations

import pytest

from thresher.errors import UsageError
from thresher.simulate.nodes import NodeText, cost_of, make_nodes, parse_node

GB = 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64cpu,8gpu,80GB", NodeText(64, 256 * GB, 8, 80 * GB)),
        ("64cpu,512GB,8gpu,80GB", NodeText(64, 512 * GB, 8, 80 * GB)),
        ("2 cpus, 16 GB", NodeText(2, 16 * GB)),
        ("8gpu,24GB,32cpu,64GB", NodeText(32, 64 * GB, 8, 24 * GB)),
        ("4CPU,1GPU", NodeText(4, 16 * GB, 1, 80 * GB)),
        ("0.5cpu,1GiB,license=2", NodeText(0.5, 2**30, custom={"license": 2.0})),
    ],
)
def test_a_size_belongs_to_what_stands_before_it(text: str, expected: NodeText) -> None:
    assert parse_node(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "neither a number"),
        ("8gpu,80GB", "names no CPUs"),
        ("80GB,4cpu", "must stand behind"),
        ("4cpu,1GB,2GB", "must stand behind"),
        ("4cpu,lots", "'lots' is neither"),
        ("4cpu,1.5gpu", "not a whole number"),
    ],
)
def test_a_text_that_is_no_machine_is_refused_with_its_reason_and_an_example(text: str, why: str) -> None:
    with pytest.raises(UsageError, match="--node") as refused:
        parse_node(text)
    assert why in str(refused.value) or "must stand behind" in str(refused.value)
    assert "64cpu,512GB,8gpu,80GB" in str(refused.value)


def test_machines_have_names_of_their_own_and_what_the_text_says() -> None:
    nodes = make_nodes(parse_node("4cpu,2gpu,40GB"), 100)
    assert len({node.node for node in nodes}) == 100
    assert nodes[0].gpus == (40 * GB, 40 * GB)


def test_every_machine_is_paid_for_the_whole_time() -> None:
    cost = cost_of(wall_s=1800, nodes=10, data_bytes=2 * 10**12, per_node_hour=3.0)
    assert (cost.total, cost.per_tb) == (15.0, 7.5)
