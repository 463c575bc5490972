# SPDX-License-Identifier: Apache-2.0
"""The chart of accelerators."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.dashboard.gantt import MOST_BINS, MOST_LANES, Gantt
from thresher.observe.event_log import encode_line
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev


def lines(*items: tuple[float, ev.Event | act.Action]) -> list[bytes]:
    """Return lines of a log."""
    return [encode_line(n, t, item) for n, (t, item) in enumerate(items)]


def test_a_worker_is_busy_from_its_first_task_to_its_last() -> None:
    gantt = Gantt()
    task = act.TaskRef(1, "u")
    for line in lines(
        (0.0, act.StartWorker(7, op=0, devices=(0,))),
        (0.0, act.StartWorker(8, op=1)),
        (1.0, act.Dispatch(7, 0, (task, act.TaskRef(2, "u")))),
        (1.0, act.Dispatch(8, 1, (act.TaskRef(3, "u"),))),
        (2.0, ev.TaskDone(1, 7)),
        (3.0, ev.TaskDone(2, 7)),
        (9.0, ev.TaskDone(3, 8)),
        (10.0, act.StopWorker(7)),
    ):
        gantt.take(line)
    (lane,) = gantt.as_json()["lanes"]
    assert lane["name"] == "local/0 · worker 7"
    assert sum(share for _, share in lane["busy"]) * gantt.width_s == pytest.approx(2.0)
    assert (lane["start"], lane["end"]) == (0.0, 10.0)


@given(st.lists(st.floats(0.01, 5000.0), min_size=1, max_size=60))
def test_the_chart_stays_small_and_keeps_the_sum_however_long_the_run_is(gaps: list[float]) -> None:
    gantt, t, busy = Gantt(), 0.0, 0.0
    gantt.take(encode_line(0, 0.0, act.StartWorker(1, op=0, devices=(0,))))
    for gap in gaps:
        gantt.take(encode_line(1, t, act.Dispatch(1, 0, (act.TaskRef(1, "u"),))))
        t, busy = t + gap, busy + gap
        gantt.take(encode_line(2, t, ev.TaskDone(1, 1)))
    (lane,) = gantt.lanes.values()
    assert len(lane.busy) <= MOST_BINS
    assert sum(lane.busy.values()) == pytest.approx(busy, abs=1e-3)


def test_only_so_many_workers_are_drawn() -> None:
    gantt = Gantt()
    for worker in range(MOST_LANES + 5):
        gantt.take(encode_line(0, 0.0, act.StartWorker(worker, op=0, devices=(0,))))
    assert len(gantt.lanes) == MOST_LANES
    assert gantt.as_json()["more"] == 5
