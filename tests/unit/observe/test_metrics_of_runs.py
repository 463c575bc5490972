# SPDX-License-Identifier: Apache-2.0
"""The fold over whole logs of simulated runs, with failures and dying workers: no figure ever leaves its bounds."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thresher.observe.event_log import decode_line
from thresher.observe.metrics import Metrics
from thresher.observe.progress import Snapshot
from thresher.scheduler.model import OpSpec, RunSpec, UnitSpec
from thresher.simulate.scenario import Behaviour, OpBehaviour, simulate

STAGES = ("Reader", "Rule", "Writer")
OPS = (
    OpSpec(index=0, name="read", stages=("Reader",), next=2, source=True, max_attempts=100),
    OpSpec(index=1, name="unit", stages=("Reader", "Rule"), next=3, source=True, max_attempts=100),
    OpSpec(index=2, name="parse", stages=("Reader", "Rule"), next=3, max_attempts=100),
    OpSpec(index=3, name="write", stages=("Writer",), sink=True, ordered=True, max_attempts=100),
)


def check_bounds(now: Snapshot) -> None:
    """What holds at every moment."""
    assert now.units_done <= now.units_listed
    assert 0 <= now.bytes_done <= now.bytes_listed
    assert now.inflight_bytes >= 0
    assert now.workers_busy <= now.workers_total
    for stage in now.stages:
        assert stage.queue_tasks >= 0
        assert stage.queue_bytes >= 0
        assert stage.workers_busy <= stage.workers_total
    assert sum(stage.queue_bytes for stage in now.stages) <= now.inflight_bytes


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 1000),
    workers=st.integers(1, 4),
    crashes=st.lists(st.tuples(st.floats(0.1, 2), st.integers(0, 3)), max_size=3),
    failures=st.integers(0, 1),
    generator=st.booleans(),
)
def test_figures_stay_in_bounds_and_end_at_nothing_left(
    seed: int, workers: int, crashes: list[tuple[float, int]], failures: int, generator: bool
) -> None:
    how = OpBehaviour(
        (0.0, 0.1), fan_out=(0, 4), nbytes=(1, 500), generator=generator, failures=failures, fail_after=seed % 2
    )
    behaviour = Behaviour((how,) * 4, crashes=tuple(crashes), stream_blocks={"s0": 2, "s1": 3}, seed=seed)
    units = [UnitSpec(f"s{i}", (i, 0), 0, 1000, stream=True) for i in range(2)]
    units += [UnitSpec(f"u{i}", (2 + i, 0), 1, 100) for i in range(5)]
    run = simulate(RunSpec(ops=OPS, shared_workers=workers, budget_bytes=1000), units, behaviour, logged=True)
    assert run.status == "finished"

    metrics = Metrics(STAGES, OPS)
    for line in run.log[1:]:
        _, t, item = decode_line(line)
        assert not isinstance(item, RunSpec)
        metrics.update(t, item)
        check_bounds(metrics.snapshot(t))

    end = metrics.snapshot(run.makespan_s)
    assert (end.units_done, end.units_listed) == (10, 10)
    assert (end.bytes_done, end.progress_ratio, end.eta_s) == (2500, 1.0, 0.0)
    assert (end.inflight_bytes, end.workers_busy) == (0, 0)
    assert [(stage.queue_tasks, stage.queue_bytes) for stage in end.stages] == [(0, 0)] * 3
