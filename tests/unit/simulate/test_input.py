# SPDX-License-Identifier: Apache-2.0
"""The input of a rehearsal has the size that is asked for, in pieces like those of the profile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.simulate.profiles import MB, machines, one_op, profile_of
from thresher.errors import UsageError
from thresher.simulate.input import make_units
from thresher.simulate.profile import FileSample, op_key

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
