# SPDX-License-Identifier: Apache-2.0
"""What a snapshot says after events and actions: the fold needs no clock, and counts every record once."""

from __future__ import annotations

import msgspec
import pytest

from thresher.core.tally import StageTally, Tally
from thresher.observe.metrics import Metrics, Restored
from thresher.observe.progress import Snapshot, StageSnapshot, WorkerStates
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import OpSpec, UnitSpec

STAGES = ("Reader", "Rule", "Writer")
FUSED = (OpSpec(index=0, name="all", stages=STAGES, source=True, sink=True),)
STREAM = (
    OpSpec(index=0, name="read", stages=("Reader",), next=1, source=True),
    OpSpec(index=1, name="parse", stages=("Reader", "Rule"), next=2),
    OpSpec(index=2, name="write", stages=("Writer",), sink=True, ordered=True),
)


def tally(docs: int, *, dropped: int = 0, nbytes: int = 0, busy_s: float = 0.0) -> Tally:
    """What a unit's task reports: `docs` read, of which the rule dropped some."""
    kept = docs - dropped
    return Tally(
        docs,
        kept,
        {
            0: StageTally(docs, docs, nbytes, nbytes, busy_s=busy_s),
            1: StageTally(docs, kept, nbytes, nbytes, dropped=dropped, reasons={"Rule": dropped} if dropped else {}),
            2: StageTally(kept, kept, nbytes, nbytes),
        },
    )


def fold(metrics: Metrics, *items: ev.Event | act.Action, t: float = 1.0) -> Snapshot:
    """Everything at one moment, and the picture after it."""
    for item in items:
        metrics.update(t, item)
    return metrics.snapshot(t)


def with_worker(*ids: int) -> list[ev.Event | act.Action]:
    """Shared workers that are set up."""
    starts: list[ev.Event | act.Action] = [act.StartWorker(i) for i in ids]
    return [*starts, *(ev.WorkerReady(i) for i in ids)]


def listed(*sizes: int, more: bool = False) -> ev.UnitsListed:
    """Units u0, u1, … of these sizes."""
    return ev.UnitsListed(tuple(UnitSpec(f"u{i}", (i, 0), 0, size) for i, size in enumerate(sizes)), more)


def dispatch(task: int, unit: str, *, op: int = 0, epoch: int = 0, worker: int = 1) -> act.Dispatch:
    """One task to one worker."""
    return act.Dispatch(worker, op, (act.TaskRef(task, unit, epoch),))


def stage(snapshot: Snapshot, name: str) -> StageSnapshot:
    """The stage of that name."""
    return next(s for s in snapshot.stages if s.name == name)


def test_tallies_of_done_tasks_are_the_counts_of_stages() -> None:
    now = fold(
        Metrics(STAGES, FUSED),
        *with_worker(1),
        listed(100, 100),
        dispatch(-1, "u0"),
        ev.TaskDone(-1, 1, tally=tally(10, dropped=4)),
        dispatch(-2, "u1"),
        ev.TaskDone(-2, 1, tally=tally(10, dropped=1)),
    )
    rule = stage(now, "Rule")
    assert (rule.in_docs, rule.out_docs, rule.dropped) == (20, 15, 5)
    assert rule.kept_ratio == pytest.approx(0.75)
    assert stage(now, "Writer").in_docs == 15


def test_a_stage_without_records_has_no_kept_ratio() -> None:
    assert stage(fold(Metrics(STAGES, FUSED)), "Rule").kept_ratio is None


def test_tallies_from_a_log_count_like_living_ones() -> None:
    from_log = msgspec.json.decode(msgspec.json.encode(tally(10, dropped=4)))
    now = fold(
        Metrics(STAGES, FUSED), *with_worker(1), listed(100), dispatch(-1, "u0"), ev.TaskDone(-1, 1, tally=from_log)
    )
    assert stage(now, "Rule").dropped == 4


def test_work_without_a_size_is_not_done_before_its_unit_is() -> None:
    """A stage that makes its own records has no input to measure: the share of units counts, and there is no ETA."""
    metrics = Metrics(STAGES, FUSED)
    now = fold(metrics, *with_worker(1), listed(0), dispatch(-1, "u0"), ev.TaskEmitted(-1, 1, (), tally=tally(10)))
    assert (now.progress_ratio, now.eta_s) == (0.0, None)
    end = fold(metrics, ev.TaskDone(-1, 1), ev.UnitCommitted("u0", 0))
    assert end.progress_ratio == 1.0


def test_a_unit_that_starts_again_counts_once() -> None:
    metrics = Metrics(STAGES, FUSED)
    before = fold(
        metrics,
        *with_worker(1, 2),
        listed(100),
        dispatch(-1, "u0"),
        ev.TaskEmitted(-1, 1, (), tally=tally(10, dropped=4, nbytes=60)),
    )
    assert (stage(before, "Rule").in_docs, before.bytes_done) == (10, 60)
    after = fold(metrics, ev.WorkerLost(1, "killed"), act.Requeue(2, (), "u0", 1))
    assert (stage(after, "Rule").in_docs, stage(after, "Rule").dropped, after.bytes_done) == (0, 0, 0)
    end = fold(
        metrics,
        dispatch(-2, "u0", epoch=1, worker=2),
        ev.TaskDone(-2, 2, tally=tally(10, dropped=4)),
        ev.UnitCommitted("u0", 1),
    )
    assert (stage(end, "Rule").in_docs, stage(end, "Rule").dropped) == (10, 4)
    assert (end.units_done, end.bytes_done, end.progress_ratio) == (1, 100, 1.0)


def test_a_new_epoch_is_noticed_at_its_first_dispatch_where_no_worker_had_to_give_back() -> None:
    now = fold(
        Metrics(STAGES, FUSED),
        *with_worker(1),
        listed(100),
        dispatch(-1, "u0"),
        ev.TaskEmitted(-1, 1, (), tally=tally(10)),
        ev.TaskFailed(-1, 1, "OSError", "disk", tally=tally(1)),
        dispatch(-2, "u0", epoch=1),
    )
    assert stage(now, "Rule").in_docs == 0


def test_a_late_report_of_a_void_epoch_is_not_counted() -> None:
    now = fold(
        Metrics(STAGES, STREAM),
        *with_worker(1, 2),
        listed(100),
        dispatch(-1, "u0", worker=1),
        act.Requeue(2, (), "u0", 1),
        ev.TaskDone(-1, 1, tally=tally(10)),
    )
    assert stage(now, "Rule").in_docs == 0


def test_progress_is_unknown_while_input_is_being_listed() -> None:
    metrics = Metrics(STAGES, FUSED)
    now = fold(metrics, listed(100, more=True))
    assert (now.progress_ratio, now.eta_s, now.listing_complete) == (None, None, False)
    now = fold(metrics, ev.UnitsListed((UnitSpec("v", (1, 0), 0, 300),)))
    assert (now.units_listed, now.bytes_listed, now.progress_ratio) == (2, 400, 0.0)


def test_progress_follows_the_weight_of_units_and_not_the_bytes_of_the_lists_that_name_them() -> None:
    metrics = Metrics(STAGES, FUSED)
    units = (UnitSpec("u0", (0, 0), 0, 50, weight=9000), UnitSpec("u1", (1, 0), 0, 50, weight=1000))
    fold(metrics, *with_worker(1), ev.UnitsListed(units), dispatch(-1, "u0"), t=10.0)
    now = fold(metrics, ev.TaskEmitted(-1, 1, (), tally=tally(10, nbytes=50)), t=12.0)
    assert (now.progress_ratio, now.bytes_listed) == (0.0, 0)
    said = tally(10, nbytes=50)
    said.input_bytes = 4500
    now = fold(metrics, ev.TaskEmitted(-1, 1, (), tally=said), t=15.0)
    assert now.progress_ratio == pytest.approx(0.45)
    now = fold(metrics, ev.TaskDone(-1, 1, tally=tally(10)), ev.UnitCommitted("u0"), t=19.0)
    assert now.progress_ratio == pytest.approx(0.9)
    assert now.eta_s == pytest.approx(1.0)  # 9000 took 9 s, 1000 are left


def test_an_empty_input_is_done() -> None:
    assert fold(Metrics(STAGES, FUSED), ev.UnitsListed(())).progress_ratio == 1.0


def of_phase(name: str, size: int, *, more: bool = True) -> ev.UnitsListed:
    """One unit of a later phase, or the end of the list."""
    return ev.UnitsListed((UnitSpec(name, (0, 0), 0, size),), more, input_ends=more)


def test_the_progress_of_a_run_covers_all_its_phases() -> None:
    metrics = Metrics(STAGES, FUSED, phases=2)
    begin = fold(metrics, *with_worker(1), of_phase("u0", 100), dispatch(-1, "u0"), t=0.0)
    assert (begin.progress_ratio, begin.phase, begin.phases) == (0.0, 1, 2)
    half = fold(metrics, ev.TaskDone(-1, 1, tally=tally(10)), ev.UnitCommitted("u0"), t=10.0)
    assert half.progress_ratio == 0.5
    assert half.eta_s == pytest.approx(10.0)  # the second phase is taken for as long as the first
    second = fold(metrics, of_phase("u1", 300), t=10.0)
    assert (second.progress_ratio, second.phase) == (0.5, 2)
    done = fold(metrics, dispatch(-2, "u1"), ev.TaskDone(-2, 1, tally=tally(10)), ev.UnitCommitted("u1"), t=20.0)
    assert done.progress_ratio == 1.0


def test_restored_units_are_done_but_do_not_make_the_pace() -> None:
    metrics = Metrics(STAGES, FUSED, Restored(units=8, nbytes=800))
    fold(metrics, *with_worker(1), listed(100, 100), dispatch(-1, "u0"), t=10.0)
    now = fold(metrics, ev.TaskDone(-1, 1, tally=tally(10)), ev.UnitCommitted("u0"), t=15.0)
    assert (now.units_done, now.units_listed, now.units_resumed) == (9, 10, 8)
    assert now.progress_ratio == pytest.approx(0.9)
    assert now.eta_s == pytest.approx(5.0)  # 100 bytes took 5 s, 100 are left


def test_a_unit_counts_as_far_as_its_reader_has_come() -> None:
    metrics = Metrics(STAGES, FUSED)
    half = fold(
        metrics, *with_worker(1), listed(100), dispatch(-1, "u0"), ev.TaskEmitted(-1, 1, (), tally(5, nbytes=50))
    )
    assert half.progress_ratio == pytest.approx(0.5)
    # A reader may count more bytes than the unit has, for example line ends beyond its last byte.
    over = fold(metrics, ev.TaskDone(-1, 1, tally=tally(5, nbytes=70)))
    assert over.progress_ratio == 1.0


def test_the_eta_follows_the_last_minute() -> None:
    metrics = Metrics(STAGES, FUSED)
    fold(metrics, *with_worker(1), listed(*[100] * 200), t=0.0)
    for n in range(100):  # a slow first half: one unit in ten seconds
        fold(metrics, dispatch(-n - 1, f"u{n}"), ev.UnitCommitted(f"u{n}"), t=10.0 * (n + 1))
    for n in range(100, 190):  # then one in a second
        now = fold(metrics, dispatch(-n - 1, f"u{n}"), ev.UnitCommitted(f"u{n}"), t=1000.0 + n - 99)
    assert now.eta_s == pytest.approx(10.0, rel=0.05)


def test_speeds_are_those_of_the_window_and_of_the_whole_run() -> None:
    metrics = Metrics(STAGES, FUSED)
    fold(metrics, *with_worker(1), listed(*[100] * 100), dispatch(-1, "u0"), t=0.0)
    for second in range(1, 21):  # 10 documents a second, then 100
        docs = 10 if second <= 10 else 100
        report = ev.TaskEmitted(-1, 1, (), tally=tally(docs, nbytes=docs * 1000, busy_s=0.5))
        now = fold(metrics, report, t=float(second))
    reader = stage(now, "Reader")
    assert reader.docs_per_s == pytest.approx(100)
    assert reader.bytes_per_s == pytest.approx(100_000)
    assert reader.docs_per_s_overall == pytest.approx(55)
    assert reader.busy_ratio == pytest.approx(0.5)


def test_speeds_fall_to_zero_when_nothing_happens() -> None:
    metrics = Metrics(STAGES, FUSED)
    fold(metrics, *with_worker(1), listed(100), dispatch(-1, "u0"), t=0.0)
    fold(metrics, ev.TaskEmitted(-1, 1, (), tally=tally(10)), t=1.0)
    now = fold(metrics, ev.Tick(30.0), t=30.0)
    later = fold(metrics, ev.Tick(36.0), t=36.0)
    assert stage(now, "Reader").docs_per_s <= 10 / 5
    assert stage(later, "Reader").docs_per_s == 0


def test_queues_hold_what_was_emitted_and_not_yet_dispatched() -> None:
    metrics = Metrics(STAGES, STREAM)
    now = fold(
        metrics,
        *with_worker(1, 2),
        ev.UnitsListed((UnitSpec("s", (0, 0), 0, 1000, stream=True),)),
        dispatch(-1, "s"),
        ev.TaskEmitted(-1, 1, (ev.Emitted(1, 40, "u0", (0, 0)), ev.Emitted(2, 60, "u0", (0, 0)))),
        dispatch(1, "u0", op=1, worker=2),
    )
    # The reader leads both the op that unpacks and the op that parses.
    assert (stage(now, "Reader").queue_tasks, stage(now, "Reader").queue_bytes) == (1, 60)
    assert (now.inflight_bytes, now.units_listed) == (100, 1)
    now = fold(metrics, ev.TaskDone(1, 2, (ev.Emitted(3, 10),)), act.Release((1,)))
    assert (stage(now, "Writer").queue_tasks, stage(now, "Writer").queue_bytes) == (1, 10)
    assert now.inflight_bytes == 70


def test_a_void_task_leaves_its_queue_with_its_payload() -> None:
    now = fold(
        Metrics(STAGES, STREAM),
        *with_worker(1),
        listed(100),
        dispatch(-1, "u0"),
        ev.TaskDone(-1, 1, (ev.Emitted(1, 40),)),
        act.Release((1,)),
    )
    assert (stage(now, "Reader").queue_tasks, stage(now, "Reader").queue_bytes, now.inflight_bytes) == (0, 0, 0)


def test_what_a_lost_worker_held_waits_again() -> None:
    metrics = Metrics(STAGES, STREAM)
    fold(metrics, *with_worker(1), listed(100), dispatch(-1, "u0"), ev.TaskDone(-1, 1, (ev.Emitted(1, 40),)))
    now = fold(metrics, dispatch(1, "u0", op=1), ev.WorkerLost(1, "killed"))
    assert (stage(now, "Reader").queue_tasks, now.workers_total, now.workers_busy) == (1, 0, 0)


def test_a_unit_waits_at_the_reader_until_it_is_dispatched() -> None:
    metrics = Metrics(STAGES, FUSED)
    assert stage(fold(metrics, *with_worker(1), listed(1, 1, 1)), "Reader").queue_tasks == 3
    now = fold(metrics, dispatch(-1, "u0"), dispatch(-2, "u1"), ev.TaskFailed(-2, 1, "OSError", "no"))
    assert stage(now, "Reader").queue_tasks == 2


def test_a_worker_is_busy_in_the_op_of_its_first_task() -> None:
    now = fold(
        Metrics(STAGES, STREAM),
        *with_worker(1, 2),
        listed(100, 100),
        dispatch(-1, "u0"),
        dispatch(-2, "u1"),
    )
    assert (stage(now, "Reader").workers_busy, stage(now, "Reader").workers_total) == (1, 2)
    assert (now.workers_busy, now.workers_total) == (1, 2)


def test_a_parked_task_leaves_its_worker_free() -> None:
    metrics = Metrics(STAGES, STREAM)
    fold(metrics, *with_worker(1), listed(100), dispatch(-1, "u0"))
    assert fold(metrics, ev.TaskParked(-1, 1)).workers_busy == 0
    assert fold(metrics, act.Resume(1, -1)).workers_busy == 1


def test_workers_of_its_own_are_told_at_the_stage_that_has_them() -> None:
    ops = (
        OpSpec(index=0, name="read", stages=("Reader",), next=1, source=True),
        OpSpec(index=1, name="rule", stages=("Rule",), dedicated_workers=3),
    )
    metrics = Metrics(STAGES, ops)
    workers = [act.StartWorker(1), *(act.StartWorker(i, op=1) for i in (2, 3, 4))]
    starting = fold(metrics, listed(100), *workers)
    assert (starting.workers_starting, starting.workers_total) == (4, 0)
    ready = fold(metrics, *(ev.WorkerReady(i) for i in (1, 2, 3, 4)))
    assert [stage(ready, name).workers_total for name in ("Reader", "Rule")] == [1, 3]
    assert fold(metrics, act.StopWorker(4), ev.WorkerSetupFailed(3, "no GPU")).workers_total == 2


def test_stages_inside_another_ones_call_do_not_lead() -> None:
    now = fold(Metrics(STAGES, FUSED), listed(100))
    assert [s.leads for s in now.stages] == [True, False, False]


def test_ops_of_a_route_that_no_unit_takes_are_not_in_the_picture() -> None:
    spare = OpSpec(index=1, name="write", stages=("Writer",), sink=True, ordered=True)
    now = fold(Metrics(STAGES, (*FUSED, spare)), listed(100))
    assert not stage(now, "Writer").leads


def test_failures_are_counted_and_told_in_one_line() -> None:
    now = fold(
        Metrics(STAGES, FUSED),
        *with_worker(1),
        listed(100),
        dispatch(-1, "u0"),
        ev.TaskFailed(-1, 1, "OSError", "disk\n  is full"),
        ev.CommitFailed("u0", 0, "no space"),
        ev.WorkerLost(1, "killed by signal 9"),
        t=2.5,
    )
    assert now.errors == 3
    assert [m.number for m in now.messages] == [1, 2, 3]
    assert now.messages[0].text == "a task failed and is retried: OSError: disk is full"
    assert now.messages[2] == type(now.messages[2])(3, 2.5, "worker 1 was lost: killed by signal 9")


def test_only_the_last_messages_are_kept() -> None:
    metrics = Metrics(STAGES, FUSED)
    now = fold(metrics, *(ev.StopRequested(f"reason {i}") for i in range(100)))
    assert [m.number for m in now.messages] == [96, 97, 98, 99, 100]


def test_memory_is_the_last_sample_and_the_highest() -> None:
    metrics = Metrics(STAGES, FUSED)
    now = fold(metrics, ev.MemorySample(500, 1000), ev.MemorySample(300, 1000))
    assert (now.memory_bytes, now.memory_peak_bytes, now.memory_limit_bytes) == (300, 500, 1000)


def test_the_units_of_a_stream_are_counted_as_they_are_cut() -> None:
    metrics = Metrics(STAGES, STREAM)
    stream = UnitSpec("s", (0, 0), 0, 1000, stream=True)
    now = fold(metrics, *with_worker(1), ev.UnitsListed((stream,)), dispatch(-1, "s"))
    assert (now.units_listed, now.bytes_listed) == (0, 1000)
    outputs = tuple(ev.Emitted(i, 10, f"s-{i // 3}", (0, i // 3)) for i in range(1, 7))
    now = fold(metrics, ev.TaskEmitted(-1, 1, outputs))
    assert now.units_listed == 3
    now = fold(metrics, ev.TaskDone(-1, 1), ev.UnitCommitted("s-0"))
    assert (now.units_done, now.units_listed, now.progress_ratio) == (1, 3, 1.0)


# -- what the endpoint and the dashboard need besides -----------------------------------------------------------------


def test_reasons_and_own_numbers_are_those_of_the_tallies_and_leave_out_what_was_taken_back() -> None:
    said = tally(10, dropped=4)
    said.stage(1).reasons = {"TooShort": 3, "TooLong": 1}
    said.stage(1).counts = {"languages": 2}
    said.stage(1).errors = {"field-missing": 0}
    metrics = Metrics(STAGES, FUSED)
    rule = stage(
        fold(metrics, *with_worker(1), listed(100), dispatch(-1, "u0"), ev.TaskEmitted(-1, 1, (), tally=said)), "Rule"
    )
    assert (rule.drop_reasons, rule.quarantine_reasons) == ({"TooLong": 1, "TooShort": 3}, {})
    assert rule.user_counts == {"languages": 2}
    again = stage(fold(metrics, act.Requeue(1, (), "u0", 1)), "Rule")
    assert (again.drop_reasons, again.dropped) == ({}, 0)


def test_what_was_not_committed_does_not_count_at_an_early_end() -> None:
    metrics = Metrics(STAGES, FUSED)
    fold(
        metrics,
        *with_worker(1),
        listed(100, 100),
        dispatch(-1, "u0"),
        ev.TaskDone(-1, 1, tally=tally(10)),
        ev.UnitCommitted("u0"),
        dispatch(-2, "u1"),
        ev.TaskEmitted(-2, 1, (), tally=tally(5)),
    )
    now = fold(metrics, ev.StopRequested("enough"), ev.StopRequested("enough", at_once=True), act.Finish("stopped"))
    assert (now.status, stage(now, "Reader").in_docs) == ("stopped", 10)
    assert [message.text for message in now.messages] == ["stopping: enough"]


def test_counts_of_earlier_attempts_are_there_and_make_no_rate() -> None:
    before = Restored(units=1, nbytes=100, tally=tally(50, dropped=5))
    metrics = Metrics(STAGES, FUSED, before)
    now = fold(metrics, *with_worker(1), listed(100), dispatch(-1, "u0"), t=1.0)
    assert (stage(now, "Rule").in_docs, stage(now, "Rule").docs_per_s) == (50, 0.0)
    now = fold(metrics, ev.TaskDone(-1, 1, tally=tally(10, dropped=1)), t=2.0)
    assert (stage(now, "Rule").in_docs, stage(now, "Rule").dropped) == (60, 6)
    assert stage(now, "Rule").docs_per_s == pytest.approx(10)
    assert metrics.total.stage(1).in_docs == 10, "the error budget adds what was before by itself"


def test_times_of_tasks_are_those_they_ran_and_those_they_waited() -> None:
    metrics = Metrics(STAGES, STREAM)
    fold(metrics, *with_worker(1), listed(100), dispatch(-1, "u0"), t=0.0)
    fold(metrics, ev.TaskEmitted(-1, 1, (), busy_s=0.5), t=0.5)
    fold(metrics, ev.TaskDone(-1, 1, (ev.Emitted(1, 40),), busy_s=0.25), t=1.0)  # it ran 0.75 s of 1 s
    fold(metrics, dispatch(1, "u0", op=1), t=3.0)
    now = fold(metrics, ev.TaskDone(1, 1, (ev.Emitted(2, 10),), busy_s=0.004), t=3.5)
    reader = stage(now, "Reader")  # it leads both ops
    assert (reader.service.count, reader.queue.count) == (2, 2)
    assert reader.service.sum_s == pytest.approx(0.754)
    assert reader.queue.sum_s == pytest.approx(0.25 + 2.5 - 0.004)
    assert reader.service.counts[2] == 1, "0.004 s is in the bucket up to 5 ms"


def test_time_in_which_tasks_wait_for_credit_or_beside_a_free_worker_is_backpressure() -> None:
    metrics = Metrics(STAGES, STREAM)
    fold(metrics, *with_worker(1), listed(100), dispatch(-1, "u0"), ev.Tick(1.0))
    assert stage(fold(metrics, ev.Tick(2.0)), "Reader").backpressure_s == 0
    now = fold(metrics, ev.TaskParked(-1, 1), ev.Tick(3.0))
    assert (stage(now, "Reader").backpressure_s, stage(now, "Reader").parked_tasks) == (1.0, 1)
    now = fold(metrics, act.Resume(1, -1), ev.Tick(5.0))
    assert (stage(now, "Reader").backpressure_s, stage(now, "Reader").parked_tasks) == (1.0, 0)
    fold(metrics, ev.TaskDone(-1, 1, (ev.Emitted(1, 40),)))  # nobody takes it, though worker 1 is free
    assert stage(fold(metrics, ev.Tick(6.0)), "Reader").backpressure_s == 2.0


DEDICATED = (
    OpSpec(index=0, name="read", stages=("Reader",), next=1, source=True),
    OpSpec(index=1, name="rule", stages=("Rule",), dedicated=True, gpus=1),
)


def test_workers_are_told_by_state_and_so_are_those_that_were_replaced_or_lost() -> None:
    metrics = Metrics(STAGES, DEDICATED)
    own = [act.StartWorker(i, op=1, devices=(i % 2,)) for i in (2, 3, 4)]
    fold(metrics, act.StartWorker(1), *own, listed(100), *(ev.WorkerReady(i) for i in (1, 2, 3)), dispatch(-1, "u0"))
    now = fold(metrics, act.StopWorker(2, "age"), ev.WorkerLost(3, "killed"), act.StartWorker(5, op=1, devices=(0,)))
    rule = stage(now, "Rule")
    assert rule.dedicated == WorkerStates(starting=2, ready=0, busy=0, recycled=1, lost=1)
    assert now.shared == WorkerStates(ready=1, busy=1)
    assert rule.accelerators == 1, "workers 4 and 5 share one"
    assert rule.errors == {"worker-lost": 1}
    surplus = fold(metrics, act.StopWorker(4, "surplus"))
    assert surplus.stages[1].dedicated == WorkerStates(starting=1, recycled=1, lost=1)


def test_decisions_of_the_autoscaler_are_counted() -> None:
    metrics = Metrics(STAGES, DEDICATED)
    now = fold(metrics, listed(100), act.Rescale(1, 4, 2), act.Rescale(1, 3, 4), act.Rescale(1, 5, 3))
    rule = stage(now, "Rule")
    assert (rule.workers_target, rule.scaled_up, rule.scaled_down) == (5, 2, 1)


def test_errors_are_counted_by_reason_at_the_stage_where_they_happened() -> None:
    metrics = Metrics(STAGES, DEDICATED)
    now = fold(
        metrics,
        *with_worker(1),
        listed(100),
        dispatch(-1, "u0"),
        ev.TaskFailed(-1, 1, "OSError", "no"),
        dispatch(-1, "u0"),
        ev.WorkerLost(1, "killed by signal 9"),
        ev.CommitFailed("u0", 0, "no space"),
        ev.WorkerSetupFailed(9, "unknown"),
    )
    assert stage(now, "Reader").errors == {"OSError": 1, "worker-lost": 1}
    assert stage(now, "Rule").errors == {"commit-failed": 1}
    assert now.errors_elsewhere == {"worker-setup-failed": 1}
    assert now.errors == 4


def test_devices_are_those_of_the_last_sample_that_measured_them() -> None:
    reading = ev.DeviceReading("local/0", 30, 80, 50.0)
    metrics = Metrics(STAGES, FUSED)
    now = fold(metrics, ev.MemorySample(1, 0, (reading,)), ev.MemorySample(2, 0))
    assert now.memory_bytes == 2
    assert [(d.name, d.memory_bytes, d.memory_total_bytes, d.busy_ratio) for d in now.devices] == [
        ("local/0", 30, 80, 0.5)
    ]


def test_the_bottleneck_is_the_stage_that_takes_most_of_the_busiest_workers() -> None:
    metrics = Metrics(STAGES, FUSED)
    fold(metrics, *with_worker(1), listed(100), dispatch(-1, "u0"), t=0.0)
    assert fold(metrics, ev.Tick(1.0), t=1.0).bottleneck is None, "nothing has been measured"
    said = Tally(stages={0: StageTally(in_docs=1, busy_s=0.2), 1: StageTally(in_docs=1, busy_s=0.7)})
    assert fold(metrics, ev.TaskEmitted(-1, 1, (), tally=said), t=1.0).bottleneck == "Rule"
    assert fold(metrics, ev.Tick(20.0), t=20.0).bottleneck is None, "all have time to spare"
