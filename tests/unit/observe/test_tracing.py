# SPDX-License-Identifier: Apache-2.0
"""Spans from an event log: which tasks get one, when they ran, and that a log leads to the same spans each time."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from thresher.observe.event_log import EventLog
from thresher.observe.tracing import TaskTimes, TracedAttempt, trace_attempt
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import OpSpec, RunSpec

SPEC = RunSpec(
    ops=(
        OpSpec(index=0, name="read", stages=("Reader", "Filter"), source=True, next=1),
        OpSpec(index=1, name="write", stages=("Writer",), sink=True, ordered=True),
    ),
    shared_workers=1,
    budget_bytes=1000,
)
ATTEMPT = TracedAttempt("run", 1, 1000.0, "finished")


def sent(task: int, op: int = 0, worker: int = 1) -> act.Dispatch:
    return act.Dispatch(worker, op, (act.TaskRef(task, f"u{task}"),))


def logged(folder: Path, *items: tuple[float, ev.Event | act.Action]) -> Path:
    log = EventLog(folder)
    log.start(SPEC, plan={"name": "a run", "stages": ["Reader", "Filter", "Writer"], "phases": 1}, executor="local")
    for n, (t, item) in enumerate(items, 1):
        log.write(n, t, item)
    log.close()
    return folder


def test_a_task_begins_when_it_runs_and_not_when_it_was_sent(tmp_path: Path) -> None:
    folder = logged(
        tmp_path,
        (1.0, sent(-1)),
        (1.0, sent(-2)),  # waits in the worker
        (2.0, ev.TaskEmitted(-1, 1, (ev.Emitted(5, 10),), busy_s=0.75)),
        (4.0, ev.TaskDone(-1, 1, busy_s=1.0)),
        (5.0, ev.TaskDone(-2, 1, busy_s=1.0)),
        (5.0, sent(5, op=1)),
        (5.5, ev.TaskFailed(5, 1, "ValueError")),
        (6.0, act.Finish("finished")),
    )
    trace = trace_attempt(folder, ATTEMPT)
    assert trace is not None
    times = [(s.name, s.start_ns / 1e9 - 1000, s.end_ns / 1e9 - 1000, s.error) for s in trace.spans]
    assert times == [
        ("a run", 0.0, 6.0, None),
        ("Reader", 1.25, 5.0, None),
        ("Filter", 1.25, 5.0, None),
        ("Writer", 5.0, 5.5, None),
        ("Reader task", 1.25, 4.0, None),
        ("Reader task", 4.0, 5.0, None),
        ("Writer task", 5.0, 5.5, "ValueError"),
    ]
    parents = {span.span_id: span.name for span in trace.spans}
    assert [parents[span.parent_id] for span in trace.spans[1:]] == [
        *("a run", "a run", "a run"),
        *("Reader", "Reader", "Writer"),
    ]
    assert trace_attempt(folder, ATTEMPT) == trace
    other = trace_attempt(folder, TracedAttempt("run", 2, 1000.0))
    assert other is not None
    assert other.trace_id != trace.trace_id


def test_a_lost_worker_fails_the_task_that_it_ran_and_not_those_behind_it() -> None:
    tasks = TaskTimes(10)
    tasks.update(1.0, act.Dispatch(1, 0, (act.TaskRef(-1, "a"), act.TaskRef(-2, "b"))))
    tasks.update(3.0, ev.WorkerLost(1, "killed"))
    tasks.update(4.0, sent(-2, worker=2))
    tasks.update(5.0, ev.TaskDone(-2, 2, busy_s=0.5))
    assert [(task.task, task.error) for task in tasks.chosen()] == [(-1, "worker-lost"), (-2, None)]


def test_tasks_that_were_taken_back_have_no_span() -> None:
    tasks = TaskTimes(10)
    tasks.update(1.0, sent(-1))
    tasks.update(2.0, act.Requeue(1, (-1,)))
    tasks.update(3.0, ev.WorkerLost(1, "killed"))
    assert tasks.chosen() == []


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 50), st.booleans()), max_size=60), st.integers(0, 8))
def test_the_failed_and_then_the_slowest_tasks_of_each_call_are_kept(
    runs: list[tuple[int, int, bool]], most: int
) -> None:
    tasks, t = TaskTimes(most), 0.0
    for number, (op, ticks, fails) in enumerate(runs, 1):
        tasks.update(t, sent(-number, op))
        t += ticks
        tasks.update(t, ev.TaskFailed(-number, 1, "E") if fails else ev.TaskDone(-number, 1, busy_s=ticks))
    for op in range(2):
        ranked = sorted(((fails, ticks) for of, ticks, fails in runs if of == op), reverse=True)
        kept = [(task.error is not None, task.end_s - task.start_s) for task in tasks.chosen() if task.op == op]
        assert sorted(kept, reverse=True) == ranked[:most]
        assert tasks.chosen_of(op) == len(kept)
