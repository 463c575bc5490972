# SPDX-License-Identifier: Apache-2.0
"""What holds on every cluster: random machines, devices, needs, start times, losses, limits, in virtual time.

The simulated cluster counts devices, memory and named resources itself and refuses a worker that has no room, and it
refuses to stop a worker that works; invariants are checked after every step. So a run that ends has kept them all.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.simulate.test_properties import Scenario, assert_complete, run, scenarios
from thresher.scheduler.model import NodeSpec, OpSpec
from thresher.scheduler.workers.placement import placement_errors
from thresher.simulate.recorded import replay

EXAMPLES = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
GB = 1_000_000_000


@st.composite
def machines(draw: st.DrawFn) -> tuple[NodeSpec, ...]:
    """One to four machines with up to four devices each."""
    return tuple(
        NodeSpec(
            node=f"n{number}",
            cpus=draw(st.sampled_from([1.0, 2.0, 8.0])),
            gpus=(draw(st.sampled_from([16, 24, 80])) * GB,) * draw(st.integers(0, 4)),
            memory_bytes=draw(st.sampled_from([0, 8, 64])) * GB,
            custom=draw(st.sampled_from([{}, {"licence": 2.0}])),
        )
        for number in range(draw(st.integers(1, 4)))
    )


@st.composite
def needs(draw: st.DrawFn, op: OpSpec) -> OpSpec:
    """The op with workers of its own that need something, or as it was."""
    if draw(st.booleans()):
        return op
    asked = draw(
        st.sampled_from(
            [
                *({"gpus": gpus} for gpus in (0.0, 0.25, 1 / 3, 0.5, 1.0, 2.0)),
                {"gpu_memory_bytes": 10 * GB},
                {"memory_bytes": 3 * GB},
                {"custom": {"licence": 1.0}},
            ]
        )
    )
    fixed = draw(st.sampled_from([None, None, 1, 2]))
    return msgspec.structs.replace(op, dedicated=True, dedicated_workers=fixed, **asked)


@st.composite
def clustered(draw: st.DrawFn, *, losses: bool = True) -> Scenario:
    """A random run on random machines."""
    scenario = draw(scenarios())
    spec = msgspec.structs.replace(
        scenario.spec,
        ops=tuple(draw(needs(op)) for op in scenario.spec.ops),
        nodes=draw(machines()),
        autoscale_interval_s=draw(st.sampled_from([0.0, 0.05, 0.5])),
        max_workers_per_stage=draw(st.sampled_from([0, 0, 3])),
        worker_max_lifetime_s=draw(st.sampled_from([0.0, 0.0, 0.3])),
        worker_restart_interval_s=draw(st.sampled_from([0.0, 0.2])),
        worker_max_tasks=draw(st.sampled_from([0, 0, 1, 5])),
    )
    assume(not placement_errors(spec))
    ops = tuple(
        replace(how, setup_s=draw(st.sampled_from([None, 0.0, 0.7])), leak_bytes=draw(st.sampled_from([0, 10])))
        for how in scenario.behaviour.ops
    )
    lost = st.tuples(st.floats(0.0, 2.0), st.sampled_from([node.node for node in spec.nodes]), st.floats(0.01, 1.0))
    behaviour = replace(
        scenario.behaviour,
        ops=ops,
        tick_s=0.05,
        worker_limit_bytes=draw(st.sampled_from([0, 5, 55])),
        node_losses=tuple(draw(st.lists(lost, max_size=3))) if losses else (),
    )
    return Scenario(spec, scenario.units, behaviour)


@EXAMPLES
@given(clustered())
def test_on_every_cluster_nothing_is_over_committed_and_nothing_is_lost_repeated_or_stuck(scenario: Scenario) -> None:
    assert_complete(scenario, run(scenario))


@settings(EXAMPLES, max_examples=60)
@given(clustered())
def test_replaying_the_log_of_a_cluster_gives_the_same_actions(scenario: Scenario) -> None:
    assert replay(run(scenario, logged=True).log) is None


@settings(EXAMPLES, max_examples=60)
@given(clustered(), st.floats(0.0, 1.0))
def test_a_run_on_a_cluster_can_be_stopped(scenario: Scenario, stop_s: float) -> None:
    result = run(replace(scenario, behaviour=replace(scenario.behaviour, stop_s=stop_s)))
    assert result.status in ("stopped", "finished")
