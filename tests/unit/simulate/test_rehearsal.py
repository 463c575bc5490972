# SPDX-License-Identifier: Apache-2.0
"""A rehearsal takes as long as arithmetic says, and ends whatever fails on the way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.simulate.profiles import MB, machines, one_op, profile_of, three_ops
from thresher.errors import UsageError
from thresher.scheduler.model import OpSpec, RunSpec
from thresher.simulate.inputs import LaterPhase, make_phase_units, make_units
from thresher.simulate.profile import CommitSample, FileSample, RunProfile, op_key, with_costs
from thresher.simulate.rehearsal import Failures, rehearse, short_name


@pytest.mark.parametrize(("nodes", "workers"), [(1, 1), (1, 4), (4, 16)])
def test_work_that_nothing_holds_up_takes_its_time_divided_by_the_workers(nodes: int, workers: int) -> None:
    spec = one_op(machines(nodes), workers)
    profile = profile_of(spec)
    found = rehearse(spec, make_units(profile, spec.ops, data_bytes=160 * MB), profile)
    assert found.status == "finished"
    assert found.wall_s == pytest.approx(160 * 0.1 / workers)
    assert found.docs == 16_000
    assert found.workers == workers
    cpu = next(use for use in found.resources if use.name == "cpu")
    assert cpu.share == pytest.approx(workers / (4 * nodes))


def test_more_workers_than_cores_bring_nothing() -> None:
    enough, too_many = one_op(machines(1), 4), one_op(machines(1), 8)
    profile = profile_of(enough)
    units = make_units(profile, enough.ops, data_bytes=320 * MB)
    least = rehearse(enough, units, profile).wall_s
    assert rehearse(too_many, units, profile).wall_s == pytest.approx(least, rel=0.1)


def test_units_of_other_sizes_cost_by_their_bytes() -> None:
    spec = one_op(machines(1), 1)
    profile = profile_of(spec)
    units = make_units(profile, spec.ops, data_bytes=100 * MB, file_bytes=20 * MB, block_bytes=10 * MB)
    assert [unit.nbytes for unit in units] == [10 * MB] * 10
    assert rehearse(spec, units, profile).wall_s == pytest.approx(10.0)


def two_phases(workers: int) -> RunSpec:
    """Two calls, the second of which reads what the first has written for it."""
    ops = [OpSpec(index=n, name=f"phase {n}", stages=(f"stage {n}",), source=True, sink=True) for n in range(2)]
    return RunSpec(ops=tuple(ops), shared_workers=workers, budget_bytes=10**9, nodes=machines(1))


def phased(spec: RunSpec) -> RunProfile:
    """One file and what the second phase has read of it, half as much."""
    profile = profile_of(spec)
    return replace(profile, files=(*profile.files, FileSample(MB // 2, 1, op_key(spec.ops[1]), later=True)))


def test_a_phase_begins_when_all_units_of_the_one_before_are_committed() -> None:
    spec = two_phases(workers=2)
    profile = phased(spec)
    units = make_units(profile, spec.ops, data_bytes=3 * MB)
    later = make_phase_units(profile, [LaterPhase(spec.ops[1], MB // 2)], 3 * MB)
    assert [unit.nbytes for unit in later[0]] == [MB // 2] * 3
    found = rehearse(spec, units, profile, later=later)
    # Three units on two workers take two rounds in each phase, and no unit of the second begins before its phase.
    assert found.wall_s == pytest.approx(2 * 0.1 + 2 * 0.05)
    assert [phase.wall_s for phase in found.phases] == pytest.approx([0.2, 0.1])
    assert [(phase.units, phase.data_bytes) for phase in found.phases] == [(3, 3 * MB), (3, 3 * MB // 2)]
    assert found.phases[1].bottleneck == "stage 1 in phase 1 (75% busy)"
    assert (found.data_bytes, found.docs) == (3 * MB, 300), "input counts once"


def test_a_result_over_all_documents_stays_one_unit_however_large_the_input() -> None:
    spec = two_phases(workers=2)
    profile = phased(spec)
    (later,) = make_phase_units(profile, [LaterPhase(spec.ops[1], None)], 1000 * MB)
    assert [unit.nbytes for unit in later] == [MB // 2]


def test_too_many_units_in_a_phase_are_refused_with_what_to_do() -> None:
    spec = two_phases(workers=2)
    with pytest.raises(UsageError, match=r"phase 2 of .* Set a larger blocksize for stage 1"):
        make_phase_units(phased(spec), [LaterPhase(spec.ops[1], 10)], 10**7 * MB)


def test_machines_that_fail_do_not_keep_a_phase_from_its_end() -> None:
    spec = replace(two_phases(workers=8), nodes=machines(3))
    profile = phased(spec)
    units = make_units(profile, spec.ops, data_bytes=500 * MB)
    later = make_phase_units(profile, [LaterPhase(spec.ops[1], MB // 2)], 500 * MB)
    found = rehearse(spec, units, profile, Failures(per_hour=3600, repair_s=2.0), seed=1, later=later)
    assert found.failures_s
    assert (found.status, len(found.phases)) == ("finished", 2)


def test_the_commit_of_a_small_unit_does_not_make_those_of_large_ones_long() -> None:
    spec = one_op(machines(1), 1)
    profile = replace(profile_of(spec), commits=(CommitSample(1000, 0.5), CommitSample(2 * MB - 1000, 0.5)))
    units = make_units(profile, spec.ops, data_bytes=10 * MB)
    assert rehearse(spec, units, profile).wall_s == pytest.approx(10 * (0.1 + 0.5))


def test_a_given_cost_replaces_what_was_measured() -> None:
    spec = one_op(machines(1), 1)
    profile = with_costs(profile_of(spec), {"write": 0.25})
    units = make_units(profile, spec.ops, data_bytes=10 * MB)
    assert rehearse(spec, units, profile).wall_s == pytest.approx(10 * (0.05 + 0.25))


def test_the_driver_is_the_limit_where_events_are_many_and_work_is_little() -> None:
    spec = one_op(machines(10), 40)
    profile = replace(profile_of(spec, busy_s=0.0001), driver_event_s=0.001)
    found = rehearse(spec, make_units(profile, spec.ops, data_bytes=1000 * MB), profile)
    assert found.bottleneck.startswith("the driver")
    assert found.wall_s == pytest.approx(found.events * 0.001)


def test_the_driver_takes_its_time_from_calls_where_no_core_is_free() -> None:
    profile = replace(profile_of(one_op(machines(1), 4), busy_s=0.01), driver_event_s=0.0005)
    units = make_units(profile, one_op(machines(1), 4).ops, data_bytes=800 * MB)
    crowded = rehearse(one_op(machines(1, cpus=4), 4), units, profile)
    roomy = rehearse(one_op(machines(1, cpus=5), 4), units, profile)
    taken_s = crowded.events * 0.0005
    assert 0.5 * taken_s / 4 < crowded.wall_s - roomy.wall_s <= 1.1 * taken_s / 4


def test_a_task_that_ends_with_its_output_runs_on_every_worker() -> None:
    spec = three_ops(machines(1, cpus=2), 2)
    profile = profile_of(spec, busy_s=0.001, fan_out=12)
    work = op_key(spec.ops[1])
    at_once = replace(profile.ops[work], at_once=True)
    at_once = replace(profile, ops={**profile.ops, work: at_once})
    at_once = with_costs(at_once, {"work": 0.01})
    found = rehearse(spec, make_units(at_once, spec.ops, data_bytes=100 * MB), at_once)
    cpu = next(use for use in found.resources if use.name == "cpu")
    assert cpu.share > 0.95


def test_a_long_name_is_shown_by_its_ends() -> None:
    assert short_name("read+work+write") == "read+work+write"
    long = "+".join(["JsonlReader", *(f"SomeRatherLongFilter{n}" for n in range(5)), "JsonlWriter"])
    assert short_name(long) == "JsonlReader+SomeRatherLongFilter0+…4 more…+JsonlWriter"


def test_the_slowest_stage_is_named() -> None:
    spec = three_ops(machines(2), 8)
    profile = with_costs(profile_of(spec, busy_s=0.01), {"work": 0.5})
    found = rehearse(spec, make_units(profile, spec.ops, data_bytes=200 * MB), profile)
    assert found.bottleneck.startswith("work")
    assert max(found.stages, key=lambda use: use.busy_s).name == "work"
    assert 0 < found.inflight_bytes <= spec.budget_bytes


def test_one_stream_cannot_be_shared_out() -> None:
    spec = three_ops(machines(4), 16)
    profile = with_costs(profile_of(spec, busy_s=0.0, fan_out=4, stream=True), {"read": 1.0})
    found = rehearse(spec, make_units(profile, spec.ops, data_bytes=20 * MB, file_bytes=20 * MB), profile)
    assert found.wall_s == pytest.approx(20.0, rel=0.05)
    assert "one task of read" in found.bottleneck


def test_a_stage_on_accelerators_keeps_them_busy() -> None:
    spec = three_ops(machines(2, gpus=2), 8, dedicated_workers=4, gpus=1.0)
    profile = with_costs(profile_of(spec, busy_s=0.001), {"work": 0.2})
    found = rehearse(spec, make_units(profile, spec.ops, data_bytes=400 * MB), profile)
    gpu = next(use for use in found.resources if use.name == "gpu")
    assert gpu.share > 0.95
    assert found.wall_s == pytest.approx(400 * 0.2 / 4, rel=0.05)


def test_workers_start_with_the_time_that_was_measured_for_their_stage() -> None:
    spec = three_ops(machines(1, gpus=1), 2, dedicated_workers=1, gpus=1.0)
    profile = profile_of(spec, busy_s=0.01)
    work = op_key(spec.ops[1])
    slow = replace(profile, ops={**profile.ops, work: replace(profile.ops[work], start_s=60.0)})
    units = make_units(profile, spec.ops, data_bytes=10 * MB)
    assert rehearse(spec, units, slow).wall_s == pytest.approx(60 + rehearse(spec, units, profile).wall_s, rel=0.01)


def test_the_same_seed_gives_the_same_rehearsal() -> None:
    spec = three_ops(machines(3), 12)
    profile = profile_of(spec, fan_out=3)
    units = make_units(profile, spec.ops, data_bytes=60 * MB)
    failures = Failures(per_hour=1000, repair_s=1)
    assert rehearse(spec, units, profile, failures, seed=7) == rehearse(spec, units, profile, failures, seed=7)


@settings(max_examples=30, deadline=None)
@given(
    nodes=st.integers(2, 5),
    units=st.integers(1, 30),
    fan_out=st.integers(0, 5),
    per_hour=st.sampled_from([0, 2_000, 20_000]),
    stream=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_every_unit_is_committed_whatever_machines_fail(
    nodes: int, units: int, fan_out: int, per_hour: float, stream: bool, seed: int
) -> None:
    spec = three_ops(machines(nodes, cpus=2), 2 * nodes)
    profile = profile_of(spec, busy_s=0.02, fan_out=fan_out, stream=stream and fan_out > 0)
    listed = make_units(profile, spec.ops, data_bytes=units * MB)
    found = rehearse(spec, listed, profile, Failures(per_hour, repair_s=0.5), seed)
    # A unit that machines failed under again and again may end a run, as it would a real one.
    assert found.status == "finished" or "failed" in found.status
    if not per_hour:
        assert found.status == "finished"
        assert sum(use.tasks for use in found.stages if use.name == "commits") == units
