# SPDX-License-Identifier: Apache-2.0
"""How many workers each op gets: compared with every possible choice on small clusters."""

from __future__ import annotations

import itertools
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.scheduler.model import NodeSpec
from thresher.scheduler.workers.capacity import PARTS, Need, Nodes
from thresher.scheduler.workers.placement import Demand, Shared, best_counts, even_counts, pack

SHARES = {0.25: Need(parts=PARTS // 4), 0.5: Need(parts=PARTS // 2), 1.0: Need(whole=1), 2.0: Need(whole=2)}


def nodes(*devices: int) -> Nodes:
    return Nodes(tuple(NodeSpec(node=f"n{n}", cpus=8.0, gpus=(1,) * count) for n, count in enumerate(devices)))


def best_rate(demands: list[Demand], empty: Nodes, most: int) -> float:
    """The best rate of all choices that fit, found by trying each one."""
    found = 0.0
    for counts in itertools.product(range(1, most + 1), repeat=len(demands)):
        rate = min(n / d.work_s for n, d in zip(counts, demands, strict=True))
        if rate > found and pack(empty, [(d.need, n) for n, d in zip(counts, demands, strict=True)]) is not None:
            found = rate
    return found


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(SHARES)), st.floats(0.05, 5.0)), min_size=2, max_size=3),
    st.lists(st.integers(1, 3), min_size=1, max_size=2),
)
def test_numbers_are_within_one_worker_of_the_best_choice(asked: list[tuple[float, float]], devices: list[int]) -> None:
    empty = nodes(*devices)
    demands = [Demand(n, work_s, SHARES[share]) for n, (share, work_s) in enumerate(asked)]
    if pack(empty, [(demand.need, 1) for demand in demands]) is None:
        return
    best = best_rate(demands, empty, 4 * sum(devices))
    found = best_counts(demands, Shared(), empty)
    assert pack(empty, [(demand.need, found[demand.op]) for demand in demands]) is not None
    for demand in demands:
        needed = ceil(best * demand.work_s - 1e-9)
        assert needed - 1 <= found[demand.op] <= needed + 1


def test_the_slowest_op_gets_the_devices() -> None:
    demands = [Demand(0, 1.0, SHARES[1.0]), Demand(1, 3.0, SHARES[1.0])]
    assert best_counts(demands, Shared(), nodes(4)) == {0: 1, 1: 3}


def test_no_op_gets_more_than_the_pipeline_can_use() -> None:
    """Shared workers pass ten units a second, so ten workers that need a second each are enough."""
    found = best_counts([Demand(0, 1.0, SHARES[0.25])], Shared(work_s=0.8, cpus=8.0), nodes(8))
    assert found == {0: 10}


def test_fixed_numbers_stay_and_limits_hold() -> None:
    demands = [Demand(0, 9.0, SHARES[1.0], fixed=2), Demand(1, 1.0, SHARES[0.25], most=3), Demand(2, 2.0, SHARES[0.5])]
    found = best_counts(demands, Shared(), nodes(4))
    assert found[0] == 2
    assert found[1] <= 3
    assert best_counts([Demand(1, 1.0, SHARES[0.25], most=3)], Shared(), nodes(4)) == {1: 3}


def test_workers_on_cpus_leave_enough_for_shared_work() -> None:
    """Eight CPUs, 0.07 s of own and 0.02 s of shared work: six and two."""
    assert best_counts([Demand(0, 0.07, Need())], Shared(0.02, 8.0), nodes(0)) == {0: 6}


def test_an_op_without_work_keeps_one_worker() -> None:
    assert best_counts([Demand(0, 0.0, SHARES[1.0]), Demand(1, 1.0, SHARES[1.0])], Shared(), nodes(4)) == {0: 1, 1: 3}


def test_before_anything_is_measured_devices_are_shared_evenly() -> None:
    demands = [Demand(0, 1.0, SHARES[0.25]), Demand(1, 1.0, SHARES[1.0]), Demand(2, 1.0, Need())]
    assert even_counts(demands, nodes(4)) == {0: 8, 1: 2, 2: 1}


def test_thousands_of_devices_are_given_out_quickly_and_all_of_them() -> None:
    demands = [Demand(0, 1.0, SHARES[0.25]), Demand(1, 1.5, SHARES[1.0])]
    found = best_counts(demands, Shared(), nodes(*[8] * 100))
    assert found[0] / 4 + found[1] >= 799
    assert abs(found[0] - found[1] / 1.5) <= 4
