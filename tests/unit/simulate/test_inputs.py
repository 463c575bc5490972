# SPDX-License-Identifier: Apache-2.0
"""Machines as people write them, and input of the size that is asked for, in pieces like those of the profile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.simulate.profiles import MB, machines, one_op, profile_of
from thresher.errors import UsageError
from thresher.simulate.inputs import NodeText, cost_of, make_nodes, make_units, parse_node
from thresher.simulate.profile import FileSample, op_key

GB = 10**9
SPEC = one_op(machines(1), 1)
PROFILE = profile_of(SPEC)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 10**8), st.integers(1, 9)), min_size=1, max_size=5),
    data=st.integers(1, 10**9),
    file_bytes=st.none() | st.integers(10**6, 10**9),
    block_bytes=st.none() | st.integers(10**6, 10**9),
)
def test_units_hold_exactly_the_data_that_is_asked_for(
    sizes: list[tuple[int, int]], data: int, file_bytes: int | None, block_bytes: int | None
) -> None:
    files = tuple(FileSample(max(nbytes, units), units, op_key(SPEC.ops[0])) for nbytes, units in sizes)
    if data / max(file.nbytes for file in files) > 1000:
        data = 1000 * max(file.nbytes for file in files)
    profile = replace(PROFILE, files=files)
    units = make_units(profile, SPEC.ops, data_bytes=data, file_bytes=file_bytes, block_bytes=block_bytes)
    assert sum(unit.nbytes for unit in units) == data
    assert len({unit.unit for unit in units}) == len(units)


def test_without_a_size_the_input_is_that_of_the_profile() -> None:
    files = tuple(FileSample(n * MB, n, op_key(SPEC.ops[0])) for n in (1, 3))
    units = make_units(replace(PROFILE, files=files), SPEC.ops)
    assert [unit.nbytes for unit in units] == [MB] * 4
    assert [unit.order for unit in units] == [(0, 0), (1, 0), (1, 1), (1, 2)]


def test_blocks_follow_the_recipe_where_it_asks_for_quite_another_size() -> None:
    profile = replace(PROFILE, files=(FileSample(64 * MB, 1, op_key(SPEC.ops[0])),))
    assert len(make_units(profile, SPEC.ops, block_bytes=64 * MB)) == 1
    assert len(make_units(profile, SPEC.ops, block_bytes=8 * MB)) == 8


def test_more_units_than_memory_holds_are_refused_with_what_helps() -> None:
    profile = replace(PROFILE, files=(FileSample(1000, 1, op_key(SPEC.ops[0])),))
    with pytest.raises(UsageError, match="--file-size"):
        make_units(profile, SPEC.ops, data_bytes=10**12)


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
