# SPDX-License-Identifier: Apache-2.0
"""Freed shared memory that workers keep counts against the memory limit of the run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thresher.backends.processes.local_cluster import KEEP_LEAST, KEEP_SHARE, keep_bytes


@given(st.integers(1, 2**42), st.integers(1, 512))
def test_all_workers_together_keep_a_small_part_of_the_memory(memory_bytes: int, workers: int) -> None:
    kept = keep_bytes(memory_bytes, workers)
    assert kept == KEEP_LEAST or kept * workers <= memory_bytes // KEEP_SHARE


def test_an_array_of_100_mb_is_kept_by_each_of_two_workers_with_2_gb() -> None:
    assert keep_bytes(2 * 10**9, 2) >= 100 * 10**6
