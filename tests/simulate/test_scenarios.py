# SPDX-License-Identifier: Apache-2.0
"""Whole runs in virtual time, each for one promise: no deadlock, bounded memory, busy workers, small messages."""

from __future__ import annotations

import msgspec
import pytest

from thresher.observe.event_log import decode_line
from thresher.scheduler.model import OpSpec, RunSpec, UnitSpec
from thresher.simulate.scenario import Behaviour, OpBehaviour, SimResult, expected_at_sink, simulate

BATCH = 100
READ = OpSpec(index=0, name="read", source=True, next=1, output_bytes=BATCH)
FILTER = OpSpec(index=1, name="filter", next=2, output_bytes=BATCH)
WRITE = OpSpec(index=2, name="write", sink=True, ordered=True)


def spec_of(*ops: OpSpec, workers: int, budget: int) -> RunSpec:
    return RunSpec(ops=ops, shared_workers=workers, budget_bytes=budget)


def units_of(count: int, entry: int = 0) -> list[UnitSpec]:
    return [UnitSpec(f"u{n:04}", (n, 0), entry) for n in range(count)]


def read_filter_write(
    *, batches: int, read_s: float = 0.01, filter_s: float = 0.01, write_s: float = 0.01
) -> Behaviour:
    """A reader that emits one batch after another, a filter, a writer."""
    return Behaviour(
        ops=(
            OpBehaviour((read_s, read_s), fan_out=(batches, batches), nbytes=(BATCH, BATCH), generator=True),
            OpBehaviour((filter_s, filter_s), nbytes=(BATCH, BATCH)),
            OpBehaviour((write_s, write_s)),
        )
    )


def assert_all_written(result: SimResult, spec: RunSpec, units: list[UnitSpec], behaviour: Behaviour) -> None:
    assert result.status == "finished"
    for unit in units:
        assert result.committed[unit.unit] == expected_at_sink(spec, unit.unit, unit.entry, behaviour)


@pytest.mark.parametrize("budget", [1, BATCH, 1_000_000])
def test_it_runs_on_one_worker(budget: int) -> None:
    spec, units, behaviour = (
        spec_of(READ, FILTER, WRITE, workers=1, budget=budget),
        units_of(3),
        read_filter_write(batches=5),
    )
    assert_all_written(simulate(spec, units, behaviour), spec, units, behaviour)


def test_a_fan_out_of_ten_thousand_runs_in_a_budget_of_one_batch() -> None:
    spec, units = spec_of(READ, FILTER, WRITE, workers=2, budget=BATCH), units_of(1)
    behaviour = Behaviour(
        ops=(
            OpBehaviour((0.001, 0.001), fan_out=(2, 2), generator=True),
            OpBehaviour((0.001, 0.001), fan_out=(10_000, 10_000), generator=True),
            OpBehaviour((0.001, 0.001)),
        )
    )
    result = simulate(spec, units, behaviour, checked=False)
    assert len(result.committed["u0000"]) == 20_000
    assert result.max_used_bytes <= 4 * BATCH, "one batch in each place, not ten thousand"


def test_a_slow_sink_stops_the_source() -> None:
    spec, units = spec_of(READ, FILTER, WRITE, workers=2, budget=10**9), units_of(1)
    behaviour = read_filter_write(batches=500, read_s=0.001, filter_s=0.001, write_s=0.1)
    result = simulate(spec, units, behaviour)
    assert_all_written(result, spec, units, behaviour)
    assert result.max_used_bytes <= 12 * BATCH, "the reader could be five hundred batches ahead"


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_bytes_in_flight_do_not_grow_with_the_input(workers: int) -> None:
    spec, behaviour = spec_of(READ, FILTER, WRITE, workers=workers, budget=10**9), read_filter_write(batches=10)
    small = simulate(spec, units_of(20), behaviour, checked=False)
    large = simulate(spec, units_of(160), behaviour, checked=False)
    assert large.max_used_bytes <= 1.1 * small.max_used_bytes + BATCH
    assert large.max_used_bytes <= 4 * workers * BATCH + 2 * BATCH


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_workers_are_busy_while_there_is_work(workers: int) -> None:
    spec, units = spec_of(READ, FILTER, WRITE, workers=workers, budget=10**9), units_of(40)
    behaviour = read_filter_write(batches=20, read_s=0.002, filter_s=0.03, write_s=0.003)
    result = simulate(spec, units, behaviour)
    busy_share = 1 - result.idle_s / (result.makespan_s * workers)
    assert busy_share > 0.9, "start-up and the tail included"


@pytest.mark.parametrize("workers", [2, 4])
def test_a_single_stream_keeps_all_workers_busy(workers: int) -> None:
    spec = spec_of(READ, FILTER, WRITE, workers=workers, budget=10**9)
    units = [UnitSpec("s", (0, 0), 0, 0, stream=True)]
    behaviour = read_filter_write(batches=20, read_s=0.002, filter_s=0.05, write_s=0.003)
    behaviour = Behaviour(behaviour.ops, stream_blocks={"s": 20})
    result = simulate(spec, units, behaviour)
    assert len(result.committed) == 20
    assert 1 - result.idle_s / (result.makespan_s * workers) > 0.9


def test_whole_units_and_streamed_ones_share_the_workers() -> None:
    whole = OpSpec(index=3, name="read+filter+write", source=True, sink=True)
    spec = spec_of(READ, FILTER, WRITE, whole, workers=2, budget=1_000)
    units = [UnitSpec(f"u{n}", (n, 0), 0 if n % 2 else 3) for n in range(10)]
    behaviour = read_filter_write(batches=4)
    behaviour = Behaviour((*behaviour.ops, OpBehaviour((0.05, 0.05))))
    assert_all_written(simulate(spec, units, behaviour), spec, units, behaviour)


def test_a_dedicated_worker_never_waits_for_its_next_task() -> None:
    model = OpSpec(index=1, name="model", next=2, output_bytes=BATCH, dedicated_workers=1)
    spec, units = spec_of(READ, model, WRITE, workers=2, budget=10**9), units_of(10)
    behaviour = read_filter_write(batches=20, read_s=0.005, filter_s=0.02, write_s=0.005)
    result = simulate(spec, units, behaviour)
    assert result.makespan_s < 10 * 20 * 0.02 * 1.05 + 0.2, "the model's own time, and the start"


def test_tiny_tasks_are_sent_in_few_messages() -> None:
    ops = tuple(OpSpec(index=n, name=f"op{n}", source=n == 0, next=n + 1 if n < 2 else None) for n in range(3))
    spec = spec_of(*ops, workers=2, budget=10**9)
    behaviour = Behaviour(tuple(OpBehaviour((0.0001, 0.0001)) for _ in ops), commit_s=0.0)
    result = simulate(spec, units_of(2_000), behaviour, checked=False, logged=True)
    kinds = [type(decode_line(line).item).__name__ for line in result.log]
    assert kinds.count("TaskDone") == 6_000
    assert kinds.count("Dispatch") <= 6_000 / 20


def test_with_a_barrier_an_op_starts_after_everything_upstream_has_ended() -> None:
    spec = RunSpec(ops=(READ, FILTER, WRITE), shared_workers=2, budget_bytes=1, barrier=True)
    behaviour = read_filter_write(batches=3)
    result = simulate(spec, units_of(4), behaviour, logged=True)
    items = [decode_line(line).item for line in result.log]
    ops = [item.op for item in items if type(item).__name__ == "Dispatch"]
    assert ops == sorted(ops)
    assert result.status == "finished"


def test_a_poisoned_unit_ends_the_run_and_what_was_committed_stays() -> None:
    spec, units = spec_of(READ, FILTER, WRITE, workers=1, budget=1_000), units_of(3)
    good = read_filter_write(batches=2).ops
    behaviour = Behaviour((good[0], OpBehaviour(failures=5), good[2]))
    result = simulate(spec, units, behaviour)
    assert result.status.startswith("failed: unit 'u0000' failed 3 times in filter,")


def test_a_unit_that_fails_many_times_waits_for_minutes_and_is_committed() -> None:
    """Between two tries nothing happens but Ticks, and a try is over before the next one: that is no deadlock."""
    patient = msgspec.structs.replace(WRITE, max_attempts=100)
    spec, units = RunSpec(ops=(READ, FILTER, patient), shared_workers=1, budget_bytes=1, backoff_s=0.5), units_of(1)
    fails = OpBehaviour((0.01, 0.01), failures=1)  # each task of the sink once, so the unit as often as it has batches
    behaviour = Behaviour(ops=(OpBehaviour((0.0, 0.0), fan_out=(12, 12)), OpBehaviour((0.0, 0.0)), fails))
    result = simulate(spec, units, behaviour)
    assert_all_written(result, spec, units, behaviour)
    assert result.makespan_s > 120
