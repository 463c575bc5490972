# SPDX-License-Identifier: Apache-2.0
"""From an id to the unit that holds the record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.core.unit import Piece, Unit, file12, unit_id
from thresher.errors import UsageError
from thresher.inspect.recompute import locate

FILE = file12("a.jsonl")


def blocks(starts: list[tuple[int, int]]) -> list[Unit]:
    """Units of one file; first byte (or group) and first row of each."""
    return [
        Unit(
            unit_id("a.jsonl", n),
            (0, n),
            (Piece("/in/a.jsonl", "a.jsonl", 1000, start=start, end=start + 1, row=row),),
            "a",
        )
        for n, (start, row) in enumerate(starts)
    ]


@given(st.integers(0, 999))
def test_a_byte_belongs_to_the_block_that_it_lies_in(position: int) -> None:
    units = blocks([(0, 0), (300, 0), (600, 0)])
    found = locate(f"{FILE}:{position}", units)
    assert found.unit is units[position // 300 if position < 900 else 2]
    assert (found.position, found.is_row, found.piece.path) == (position, False, "/in/a.jsonl")


@given(st.integers(0, 999))
def test_a_row_belongs_to_the_row_groups_that_hold_it(row: int) -> None:
    units = blocks([(0, 0), (1, 100), (5, 500)])
    assert locate(f"{FILE}:r{row}", units).unit is units[0 if row < 100 else 1 if row < 500 else 2]


def test_a_line_that_starts_with_a_zstd_frame_belongs_to_the_frames_before() -> None:
    units = blocks([(0, 0), (40, 100)])
    assert locate(f"{FILE}:100", units).unit is units[0]
    assert locate(f"{FILE}:101", units).unit is units[1]


def test_a_child_is_where_its_ancestor_is() -> None:
    found = locate(f"{FILE}:5/3/1", blocks([(0, 0)]))
    assert (found.root, found.position) == (f"{FILE}:5", 5)


@pytest.mark.parametrize("wrong", ["", "5", "part.jsonl:5", f"{FILE}:x", f"{FILE}:5/", f"{FILE}:-1", "ABCDEF012345:5"])
def test_what_is_no_id_is_refused_with_an_example_of_one(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"is not the id of a record\. An id is file12:OFFSET"):
        locate(wrong, blocks([(0, 0)]))


def test_an_id_of_another_input_is_refused() -> None:
    with pytest.raises(UsageError, match="no input file of this run has ids that begin with 000000000000"):
        locate("000000000000:5", blocks([(0, 0)]))
