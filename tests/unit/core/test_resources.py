# SPDX-License-Identifier: Apache-2.0
"""What a worker may use."""

from __future__ import annotations

import pytest

from thresher.core.resources import threads_for


@pytest.mark.parametrize(
    ("cpus", "cores", "workers", "threads"),
    [
        (1.0, 64, 1, 1),
        (4.0, 64, 1, 4),
        (0.5, 64, 1, 1),
        (8.0, 2, 1, 2),
        (4.0, 8, 4, 2),
        (4.0, 2, 8, 1),
        (4.0, 1.5, 1, 1),
    ],
)
def test_a_worker_may_run_the_threads_that_its_stage_requests_up_to_its_part_of_the_cores(
    cpus: float, cores: float, workers: int, threads: int
) -> None:
    assert threads_for(cpus, cores, workers) == threads
