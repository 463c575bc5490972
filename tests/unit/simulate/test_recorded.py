# SPDX-License-Identifier: Apache-2.0
"""What a log says about costs: time in stages, time beyond them, starts, commits, sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.simulate.profiles import MB, machines, one_op, three_ops
from thresher.errors import UsageError
from thresher.observe.event_log import EventLog, encode_line, encode_start
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import RunSpec, UnitSpec
from thresher.simulate.profile import check_fits, check_routes, op_key
from thresher.simulate.recorded import LogError, load_profile, measure

Line = tuple[float, ev.AnyEvent | act.AnyAction]


def log_of(spec: RunSpec, *lines: Line) -> list[bytes]:
    return [encode_start(spec), *(encode_line(n, t, item) for n, (t, item) in enumerate(lines, start=1))]


def unit_lines(worker: int, number: int, t: float, busy_s: float) -> list[Line]:
    """A unit that is read and written on one worker: 0.01 s beyond its stages, and 0.02 s for its commit."""
    done_s = t + busy_s + 0.01
    return [
        (t, act.Dispatch(worker, 0, (act.TaskRef(-number, f"u{number}"),))),
        (done_s, ev.TaskDone(-number, worker, busy_s=busy_s)),
        (done_s, act.Commit(f"u{number}", worker=worker)),
        (done_s + 0.02, ev.UnitCommitted(f"u{number}")),
    ]


def test_time_beyond_stages_and_slow_first_tasks_are_told_apart() -> None:
    spec = one_op(machines(1), 1)
    units = tuple(UnitSpec(f"u{n}", (n, 0), 0, MB) for n in range(1, 7))
    lines: list[Line] = [
        (0.0, act.StartWorker(1)),
        (0.2, ev.UnitsListed(units)),
        (0.3, ev.WorkerReady(1)),
        *unit_lines(1, 1, 0.3, 0.5),
    ]
    for number in range(2, 7):
        lines += unit_lines(1, number, number, 0.1)
    found = measure(log_of(spec, *lines), ("read", "write"), wall_s=10.0)
    op = found.ops[op_key(spec.ops[0])]
    assert [sample.busy_s for sample in op.samples] == [0.1] * 5
    assert op.overhead_s == pytest.approx(0.01, abs=1e-3)
    assert op.cold_s == pytest.approx(0.4, abs=1e-3)
    assert [commit.held_s for commit in found.commits] == pytest.approx([0.02] * 6, abs=1e-3)
    assert (found.start_s, found.listing_s) == (0.3, 0.2)
    assert found.input_bytes == 6 * MB
    assert found.outside_s == pytest.approx(10.0 - lines[-1][0])


def test_waiting_behind_another_task_is_no_time_of_its_own() -> None:
    spec = one_op(machines(1), 1)
    units = tuple(UnitSpec(f"u{n}", (n, 0), 0, MB) for n in range(1, 9))
    tasks = [act.TaskRef(-n, f"u{n}") for n in range(1, 9)]
    lines: list[Line] = [(0.0, ev.UnitsListed(units)), (0.0, ev.WorkerReady(1))]
    lines += [(0.0, act.Dispatch(1, 0, (task,))) for task in tasks]
    lines += [(n * 1.0, ev.TaskDone(-n, 1, busy_s=0.9)) for n in range(1, 9)]
    op = measure(log_of(spec, *lines), ("read", "write")).ops[op_key(spec.ops[0])]
    assert op.overhead_s == pytest.approx(0.1, abs=1e-3)
    assert op.cold_s == 0.0


def test_a_generator_that_parks_is_one_task_with_all_its_outputs() -> None:
    spec = three_ops(machines(1), 1)
    lines: list[Line] = [
        (0.0, ev.UnitsListed((UnitSpec("s", (0, 0), 0, 5 * MB, stream=True),))),
        (0.0, ev.WorkerReady(1)),
        (0.0, act.Dispatch(1, 0, (act.TaskRef(-1, "s", credit=MB),))),
        (1.0, ev.TaskParked(-1, 1, (ev.Emitted(1, MB, "s-0", (0, 0)),), busy_s=1.0)),
        (9.0, act.Resume(1, -1)),
        (10.0, ev.TaskEmitted(-1, 1, (ev.Emitted(2, 2 * MB, "s-0", (0, 0), closes=True),), busy_s=1.0)),
        (11.0, ev.TaskDone(-1, 1, (ev.Emitted(3, MB, "s-1", (0, 1)),), busy_s=1.0)),
    ]
    op = measure(log_of(spec, *lines), ("read", "work", "write")).ops[op_key(spec.ops[0])]
    (sample,) = op.samples
    assert (sample.busy_s, sample.in_bytes) == (3.0, 5 * MB)
    assert [(out.nbytes, out.unit, out.closes) for out in sample.outputs] == [
        (MB, 0, False),
        (2 * MB, 0, True),
        (MB, 1, False),
    ]
    assert op.overhead_s == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("with_its_end", [True, False])
def test_an_op_parks_behind_its_last_output_only_if_it_was_seen_to(with_its_end: bool) -> None:
    spec = three_ops(machines(1), 1)
    output = (ev.Emitted(2, MB),)
    lines: list[Line] = [
        (0.0, ev.UnitsListed((UnitSpec("u1", (0, 0), 0, MB),))),
        (0.0, ev.WorkerReady(1)),
        (0.1, act.Dispatch(1, 1, (act.TaskRef(1, "u1"),))),
    ]
    if with_its_end:
        lines += [(0.2, ev.TaskDone(1, 1, output, busy_s=0.1))]
    else:
        lines += [(0.2, ev.TaskParked(1, 1, output, busy_s=0.1)), (0.3, ev.TaskDone(1, 1))]
    op = measure(log_of(spec, *lines), ("read", "work", "write")).ops[op_key(spec.ops[1])]
    assert op.at_once == with_its_end


def test_a_run_without_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no event log"):
        load_profile(str(tmp_path))


def test_a_run_in_which_nothing_ended_is_refused(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events" / "001")
    log.start(one_op(machines(1), 1), plan={"stages": ["read", "write"]})
    log.close()
    with pytest.raises(UsageError, match="no task ended"):
        load_profile(str(tmp_path))


def test_time_outside_the_loop_comes_from_the_report_of_a_run_in_one_attempt(tmp_path: Path) -> None:
    spec = one_op(machines(1), 1)
    log = EventLog(tmp_path / "events" / "001")
    log.start(spec, plan={"stages": ["read", "write"]})
    log.write(1, 0.0, ev.UnitsListed((UnitSpec("u1", (0, 0), 0, MB),)))
    for n, (t, item) in enumerate(unit_lines(1, 1, 1.0, 0.5), start=2):
        log.write(n, t, item)
    log.close()
    (tmp_path / "report.json").write_text(json.dumps({"status": "finished", "wall_s": 5.0}))
    assert load_profile(str(tmp_path)).outside_s == pytest.approx(5.0 - 1.53)


def test_lines_that_are_no_log_are_refused() -> None:
    with pytest.raises(LogError):
        measure([b"{}"], ())
    with pytest.raises(LogError, match="empty"):
        measure([], ())


def test_a_profile_of_another_pipeline_is_refused_with_the_difference() -> None:
    spec = one_op(machines(1), 1)
    lines: list[Line] = [(0.0, ev.UnitsListed((UnitSpec("u1", (0, 0), 0, MB),))), *unit_lines(1, 1, 1.0, 0.5)]
    found = measure(log_of(spec, *lines), ("read", "write"))
    check_fits(found, ["read", "write"], "RUN")
    check_routes(found, spec.ops, "RUN")
    with pytest.raises(UsageError, match="no filter"):
        check_fits(found, ["read", "filter", "write"], "RUN")
    with pytest.raises(UsageError, match="write, which the recipe has not"):
        check_fits(found, ["read"], "RUN")
    with pytest.raises(UsageError, match="grouped in another way"):
        check_routes(found, three_ops(machines(1), 1).ops, "RUN")
