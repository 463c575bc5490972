# SPDX-License-Identifier: Apache-2.0
"""Every line feed is found."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from thresher.kernels.json.chunks import find_line_feeds


@given(
    st.lists(st.sampled_from([b"\n", b"\n\n", b"a", b"\r", b"x" * 60, b"\n" * 70, b"\x8a\xff"]), max_size=20).map(
        b"".join
    )
)
def test_line_feeds_are_where_python_finds_them(raw: bytes) -> None:
    expected = [place for place, byte in enumerate(raw) if byte == 10]
    assert find_line_feeds(np.frombuffer(raw, dtype=np.uint8)).tolist() == expected
