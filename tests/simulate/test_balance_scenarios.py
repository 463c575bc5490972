# SPDX-License-Identifier: Apache-2.0
"""Pipelines of six shapes in virtual time: in the steady state they run at 95 % of what a linear program allows.

The program: maximise r with r x (work of each op for one unit) within the capacity of what the op runs on.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.scheduler.model import NodeSpec, OpSpec, RunSpec, UnitSpec
from thresher.simulate.scenario import Behaviour, OpBehaviour, Path, SimResult, simulate

GB = 1_000_000_000
BATCH = 100
SETTLED_S = 5.0  # after the longest setup


def node(gpus: int = 0, cpus: float = 4.0) -> tuple[NodeSpec, ...]:
    return (NodeSpec(node="n", cpus=cpus, gpus=(24 * GB,) * gpus),)


def pipeline(*inner: OpSpec, gpus: int = 0, cpus: float = 4.0) -> RunSpec:
    """A reader, these ops, an ordered writer."""
    last = len(inner) + 1
    ops = (
        OpSpec(index=0, name="read", source=True, next=1, output_bytes=BATCH),
        *inner,
        OpSpec(index=last, name="write", sink=True, ordered=True),
    )
    return RunSpec(ops=ops, shared_workers=int(cpus), budget_bytes=10**9, nodes=node(gpus, cpus))


def model(index: int, **needs: float) -> OpSpec:
    return OpSpec(index=index, name=f"model{index}", next=index + 1, output_bytes=BATCH, dedicated=True, **needs)


def takes(seconds: float, **more: object) -> OpBehaviour:
    return OpBehaviour((seconds, seconds), **more)


def units(count: int) -> list[UnitSpec]:
    return [UnitSpec(f"u{n:06}", (n, 0), 0) for n in range(count)]


def steady_rate(result: SimResult, setup_s: float, share: float = 0.9) -> float:
    """Units a second, from when everything is up until the input runs out."""
    assert result.status == "finished"
    return result.rate(setup_s + SETTLED_S, result.makespan_s * share)


@dataclass(frozen=True)
class Shape:
    """A pipeline and the rate that no scheduler could exceed."""

    name: str
    spec: RunSpec
    behaviour: Behaviour
    count: int  # units
    best: float  # units a second, from the linear program
    setup_s: float = 0.1


def shapes() -> list[Shape]:
    one, read, write = takes(0.05), takes(0.01), takes(0.001)
    fan = Shape(
        "fan-out 1 to 100",
        pipeline(OpSpec(index=1, name="cut", next=2, output_bytes=BATCH), model(2, gpus=1.0), gpus=2, cpus=4.0),
        Behaviour((read, takes(0.02, fan_out=(100, 100)), takes(0.02), takes(0.0001))),
        120,
        2 / (100 * 0.02),
    )
    bursty = Shape(
        "bursty input",
        pipeline(model(1, gpus=0.5), gpus=1),
        Behaviour((takes(0.05, fan_out=(0, 20)), takes(0.02), write)),
        800,
        2 / (10 * 0.02),
    )
    # two ops share three devices: a quarter takes 0.04 s, a half takes 0.05 s
    fractions = Shape(
        "two accelerator ops share devices by fractions",
        pipeline(model(1, gpus=0.25), model(2, gpus=0.5), gpus=3),
        Behaviour((read, takes(0.04), one, write)),
        5000,
        max(min(a / 0.04, b / 0.05) for a, b in itertools.product(range(1, 13), range(1, 7)) if a / 4 + b / 2 <= 3),
    )
    dear = Shape(
        "expensive setup",
        pipeline(model(1, gpus=1.0), model(2, gpus=1.0), gpus=4),
        Behaviour((read, takes(0.15, setup_s=20.0), replace(one, setup_s=1.0), write)),
        1600,
        20.0,
        setup_s=20.0,
    )
    slow = Shape(
        "slow writer",
        pipeline(model(1, gpus=1.0), gpus=2, cpus=2.0),
        Behaviour((read, one, takes(0.1))),
        1500,
        2 / 0.11,
    )
    cpu = Shape(
        "workers of its own on CPUs",
        pipeline(model(1), cpus=8.0),
        Behaviour((takes(0.01), takes(0.07), takes(0.01))),
        4000,
        8 / 0.09,
    )
    return [fan, bursty, fractions, dear, slow, cpu]


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.name)
def test_the_steady_state_reaches_the_rate_of_the_linear_program(shape: Shape) -> None:
    result = simulate(shape.spec, units(shape.count), shape.behaviour, checked=False)
    assert steady_rate(result, shape.setup_s) >= 0.95 * shape.best


@dataclass(frozen=True)
class Bursts(Behaviour):
    """Of forty units only two become anything, eighty batches each: then nothing comes for a while."""

    def sizes(self, op: int, unit: str, path: Path) -> list[int]:
        if op == 0:
            return [BATCH] * 80 if int(unit[1:]) % 40 < 2 else []
        return super().sizes(op, unit, path)


@pytest.mark.parametrize("unordered", [False, True])
def test_a_lull_of_the_input_is_bridged_by_what_was_read_before(unordered: bool) -> None:
    """Four workers take 80 batches a second; the lull of 0.2 s is longer than what is in flight at first."""
    ops = pipeline(model(1, gpus=0.5), gpus=2, cpus=2.0).ops
    last = OpSpec(index=2, name="last", output_bytes=BATCH) if unordered else ops[2]
    spec = msgspec.structs.replace(pipeline(model(1, gpus=0.5), gpus=2, cpus=2.0), ops=(*ops[:2], last))
    behaviour = Bursts((takes(0.01), takes(0.05), takes(0.002)), latency_s=0.0005)
    result = simulate(spec, units(1200), behaviour, checked=False)
    assert 1200 * 4 / result.makespan_s >= 0.98 * 80


def test_when_a_cost_grows_fivefold_midway_the_workers_follow() -> None:
    spec = pipeline(model(1, gpus=1.0), model(2, gpus=1.0), gpus=6)
    grown = takes(0.02, grows_from="u003000", grows_by=5.0)
    behaviour = Behaviour((takes(0.005), grown, takes(0.02), takes(0.001)))
    result = simulate(spec, units(6000), behaviour, checked=False)
    when = result.commit_times[3000]
    assert result.rate(5.1, when * 0.95) >= 0.95 * 3 / 0.02
    assert result.workers(1, when) == 3
    assert result.workers(1, when + 5.0) == result.workers(1, result.makespan_s - 0.5) == 5
    assert result.rate(when + 5.0, result.makespan_s * 0.95) >= 0.95 * 5 / 0.1


@settings(max_examples=25, deadline=None)
@given(
    times_s=st.tuples(st.sampled_from([0.05, 0.1, 0.15, 0.2]), st.sampled_from([0.05, 0.1, 0.15, 0.2])),
    devices=st.integers(2, 6),
    slow=st.sampled_from([1, 2]),
    setup_s=st.sampled_from([1.0, 5.0, 20.0]),
)
def test_five_seconds_after_a_long_setup_the_rate_is_the_best_of_all_choices(
    times_s: tuple[float, float], devices: int, slow: int, setup_s: float
) -> None:
    """Whichever of two models starts slowly, and whichever needs more devices."""
    best = max(min(n / times_s[0], (devices - n) / times_s[1]) for n in range(1, devices))
    models = [takes(time_s, setup_s=setup_s if op == slow else 0.3) for op, time_s in enumerate(times_s, 1)]
    spec = pipeline(model(1, gpus=1.0), model(2, gpus=1.0), gpus=devices)
    behaviour = Behaviour((takes(0.004), *models, takes(0.002)), latency_s=0.0005)
    result = simulate(spec, units(int(best * 62)), behaviour, checked=False)
    assert steady_rate(result, setup_s, share=0.98) >= 0.95 * best


def test_a_slow_starting_bottleneck_has_its_devices_though_a_fast_op_stands_before_it() -> None:
    spec = pipeline(model(1, gpus=1.0), model(2, gpus=1.0), gpus=4)
    behaviour = Behaviour((takes(0.005), takes(0.01), takes(0.1, setup_s=15.0), takes(0.001)))
    result = simulate(spec, units(1500), behaviour, checked=False)
    assert result.workers(2, 1.0) == 2, "half the devices, before anything is known about it"
    assert result.workers(2, 14.0) == 3, "it gets what the fast one can spare while it starts"
    assert result.workers(2, 60.0) == 3


def test_no_worker_is_started_for_a_short_tail() -> None:
    """Four workers leave after eight tasks each; the eight tasks that are left would be done long before a start."""
    spec = msgspec.structs.replace(pipeline(model(1, gpus=0.25), gpus=1), worker_max_tasks=8)
    behaviour = Behaviour((takes(0.001), takes(0.2, setup_s=30.0), takes(0.001)))
    result = simulate(spec, units(40), behaviour)
    assert result.status == "finished"
    assert max(result.workers(1, t) for t in range(31, int(result.makespan_s))) <= 4
    assert max(result.workers(1, t) for t in range(35, int(result.makespan_s))) == 1


def test_a_worker_that_is_expensive_to_start_survives_a_lull() -> None:
    """For a while hardly anything reaches the second model; it keeps its workers for twice the time they take."""
    spec = pipeline(model(1, gpus=1.0), model(2, gpus=1.0), gpus=4)
    lull = takes(0.02, grows_from="u002000", grows_by=3.0)
    behaviour = Behaviour((takes(0.005), lull, takes(0.02, setup_s=30.0), takes(0.001)))
    result = simulate(spec, units(3000), behaviour, checked=False)
    lull_s = result.commit_times[2000]
    assert result.workers(2, lull_s) == result.workers(2, lull_s + 25.0) == 2


@pytest.mark.parametrize("latency_s", [0.0, 0.001])
def test_a_single_accelerator_worker_is_never_idle_between_its_first_and_its_last_task(latency_s: float) -> None:
    """30 ms on a CPU, 50 ms on the only device, 10 ms on a CPU, two cores, 600 tasks."""
    spec = pipeline(model(1, gpus=1.0), gpus=1, cpus=2.0)
    behaviour = Behaviour((takes(0.03), takes(0.05), takes(0.01)), start_s=0.1, latency_s=latency_s)
    result = simulate(spec, units(600), behaviour, checked=False)
    assert result.makespan_s <= 0.1 + 0.03 + 600 * 0.05 * 1.005 + 0.01 + 0.005 + 10 * latency_s


@pytest.mark.parametrize("lost", ["a", "b"])
@pytest.mark.parametrize("when_s", [0.05, 3.0])
def test_when_a_node_is_lost_for_good_every_op_gets_a_device_of_what_is_left(lost: str, when_s: float) -> None:
    spec = pipeline(model(1, gpus=1.0), model(2, gpus=1.0))
    machines = tuple(NodeSpec(node=name, cpus=2.0, gpus=(24 * GB,) * 2) for name in "ab")
    spec = msgspec.structs.replace(spec, nodes=machines)
    behaviour = Behaviour((takes(0.005), takes(0.05), takes(0.02), takes(0.001)), node_losses=((when_s, lost, 1e6),))
    result = simulate(spec, units(300), behaviour)
    assert result.status == "finished"
