# SPDX-License-Identifier: Apache-2.0
"""Machines that fail and come back cost a long run little more than the time for which they are away.

A small twin of `benchmarks/failing_nodes.py`: fewer machines and tasks, the same share of failures, the same limit.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.simulate.profiles import MB, machines, one_op, profile_of, three_ops
from thresher.scheduler.model import RunSpec, UnitSpec
from thresher.simulate.profile import RunProfile
from thresher.simulate.rehearsal import Failures, rehearse

NODES, CPUS, GPUS = 20, 4, 2
HOURS = 24
MOST = 1.03
FAILING = Failures(per_hour=NODES * 0.01, repair_s=600)
TASK_S = 800.0
"""Mean time of a task: a run has about a hundred rounds of them, so that the last round weighs little."""


def fused() -> tuple[RunSpec, RunProfile, int]:
    """Everything in one call, and how many units fill the day."""
    spec = one_op(machines(NODES, cpus=CPUS), NODES * CPUS)
    return spec, profile_of(spec, busy_s=TASK_S), int(HOURS * 3600 * NODES * CPUS / TASK_S)


def with_model() -> tuple[RunSpec, RunProfile, int]:
    """A reader, a model on accelerators, a writer; a unit is four batches."""
    spec = three_ops(machines(NODES, cpus=CPUS, gpus=GPUS), NODES * 2, dedicated=True, gpus=1.0)
    cheap = profile_of(spec, busy_s=1.0, fan_out=4)
    slow = profile_of(spec, busy_s=TASK_S)
    model = next(key for key in cheap.ops if key[0] == "work")
    profile = msgspec.structs.replace(cheap, ops={**cheap.ops, model: slow.ops[model]})
    return spec, profile, int(HOURS * 3600 * NODES * GPUS / TASK_S / 4)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("make", [fused, with_model])
def test_a_day_with_one_percent_of_machines_failing_each_hour_takes_at_most_3_percent_longer(
    make: object, seed: int
) -> None:
    assert callable(make)
    spec, profile, count = make()
    units = [UnitSpec(f"u{n}", (n, 0), 0, MB) for n in range(count)]
    whole = rehearse(spec, units, profile, seed=seed)
    hit = rehearse(spec, units, profile, FAILING, seed=seed)
    assert (whole.status, hit.status) == ("finished", "finished")
    assert whole.wall_s == pytest.approx(HOURS * 3600, rel=0.02), "the job is a day's work"
    assert hit.failures_s, "some machine failed"
    assert hit.wall_s / whole.wall_s < MOST
