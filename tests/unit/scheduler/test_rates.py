# SPDX-License-Identifier: Apache-2.0
"""What is measured about an op follows a lasting change quickly and a single odd task hardly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduler.play import READ_FILTER_WRITE
from thresher.scheduler.load import FLOW_TASKS, SHIFT_TASKS, follow_time_shift, record_flow
from thresher.scheduler.model import OpSpec, RunSpec
from thresher.scheduler.state import OpState
from thresher.scheduler.workers.autoscale import task_s
from thresher.scheduler.workers.pools import Pool


def measured_op(spec: OpSpec = READ_FILTER_WRITE[1]) -> OpState:
    op = OpState(spec)
    op.pool = Pool([op], spec, RunSpec(ops=READ_FILTER_WRITE, shared_workers=1, budget_bytes=1000))
    return op


def feed(op: OpState, *times_s: float) -> None:
    for busy_s in times_s:
        follow_time_shift(op, busy_s)
        record_flow(op, busy_s, 1, 1)


@given(st.floats(0.001, 10.0), st.one_of(st.floats(0.01, 0.4), st.floats(2.5, 100.0)))
def test_a_lasting_change_is_known_after_a_few_tasks(usual_s: float, factor: float) -> None:
    op = measured_op()
    feed(op, *[usual_s] * 100, *[usual_s * factor] * (SHIFT_TASKS + 1))
    assert 0.8 < task_s(op) / (usual_s * factor) < 1.25


@given(st.floats(1.0, 50.0))
def test_fewer_odd_tasks_than_a_change_has_count_as_what_they_are(odd: float) -> None:
    """They move the mean by their own part of the recent past, no more."""
    op = measured_op()
    feed(op, *[1.0] * 100, *[odd] * (SHIFT_TASKS - 1))
    assert task_s(op) <= 1.0 + (SHIFT_TASKS - 1) * (odd - 1.0) / FLOW_TASKS + 1e-9


def test_times_that_go_up_and_down_are_no_change() -> None:
    op = measured_op()
    feed(op, *[0.1, 1.0] * 100)
    assert 0.4 < task_s(op) < 0.7
