# SPDX-License-Identifier: Apache-2.0
"""What holds for every run: random graphs, durations, sizes, fan-outs, workers, failures, crashes, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from thresher.scheduler.model import OpSpec, RunSpec, UnitSpec
from thresher.simulate.recorded import replay
from thresher.simulate.scenario import Behaviour, OpBehaviour, SimResult, expected_at_sink, simulate

EXAMPLES = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Scenario:
    """One random run."""

    spec: RunSpec
    units: list[UnitSpec]
    behaviour: Behaviour

    def expected_units(self) -> dict[str, int]:
        """Every unit that must be committed, and the op it enters at."""
        names: dict[str, int] = {}
        for unit in self.units:
            for name in self.behaviour.units_of_stream(unit.unit) if unit.stream else [unit.unit]:
                names[name] = unit.entry
        return names


@st.composite
def chains(draw: st.DrawFn, first: int) -> list[OpSpec]:
    """A route: some ops that emit, then a sink or results for the driver; or a single op that does it all."""
    length = draw(st.integers(1, 4))
    ops = []
    for place in range(length):
        last = place == length - 1
        batch_size = draw(st.sampled_from([1, 1, 1, 3]))
        sink = last and (length == 1 or draw(st.booleans()))
        ops.append(
            OpSpec(
                index=first + place,
                name=f"op{first + place}",
                next=None if last else first + place + 1,
                source=place == 0,
                sink=sink,
                ordered=sink and place > 0,
                dedicated_workers=draw(st.sampled_from([None, None, None, 1, 2])),
                batch_size=batch_size,
                by_unit=batch_size > 1 and place > 0 and not sink and draw(st.booleans()),
                max_attempts=1_000_000,
                output_bytes=draw(st.sampled_from([1, 100, 10_000])),
                cpus=draw(st.sampled_from([1.0, 1.0, 2.0])),
            )
        )
    return ops


@st.composite
def behaviours_of_ops(draw: st.DrawFn, count: int) -> tuple[OpBehaviour, ...]:
    """Durations from nothing to long, fan-outs from nothing to many, sizes from a byte to more than any budget."""
    found = []
    wide = draw(st.integers(0, count - 1))  # one op may fan out far; if all did, runs would be long and say no more
    for place in range(count):
        low_s, more_s = draw(st.sampled_from([0.0, 0.0001, 0.01])), draw(st.sampled_from([0.0, 0.001, 0.1]))
        fan_low = draw(st.integers(0, 2))
        fan_high = fan_low + draw(st.sampled_from([0, 4, 20] if place == wide else [0, 0, 1]))
        size_low = draw(st.sampled_from([0, 1, 80, 5_000]))
        found.append(
            OpBehaviour(
                duration_s=(low_s, low_s + more_s),
                fan_out=(fan_low, fan_high),
                nbytes=(size_low, size_low + draw(st.sampled_from([0, 1, 50, 20_000]))),
                generator=draw(st.booleans()),
                failures=draw(st.sampled_from([0, 0, 0, 1])),
                fail_after=draw(st.integers(0, 2)),
            )
        )
    return tuple(found)


@st.composite
def scenarios(draw: st.DrawFn, *, faults: bool = True, barrier: bool = False) -> Scenario:
    """A run with one or two routes, sharing the workers."""
    ops = draw(chains(0))
    if draw(st.booleans()):
        ops += draw(chains(len(ops)))
    sources = [op for op in ops if op.source]
    units, blocks = [], {}
    for number in range(draw(st.integers(0, 6))):
        entry = draw(st.sampled_from(sources))
        stream = entry.next is not None and draw(st.booleans())
        units.append(UnitSpec(f"u{number}", (number, 0), entry.index, 0, stream))
        if stream:
            blocks[f"u{number}"] = draw(st.integers(0, 4))
    spec = RunSpec(
        ops=tuple(ops),
        shared_workers=draw(st.integers(1, 8)),
        budget_bytes=draw(st.sampled_from([1, 100, 1_000, 50_000, 10_000_000])),
        window_batches=draw(st.integers(1, 3)),
        depth=draw(st.integers(1, 3)),
        barrier=barrier,
        setup_attempts=1_000,
        backoff_s=draw(st.sampled_from([0.0, 0.5])),
    )
    how = draw(behaviours_of_ops(len(ops)))
    if not faults:
        how = tuple(OpBehaviour(h.duration_s, h.fan_out, h.nbytes, h.generator) for h in how)
    crashes = st.tuples(st.floats(0.0, 2.0), st.integers(0, 30))
    behaviour = Behaviour(
        ops=how,
        crashes=tuple(draw(st.lists(crashes, max_size=6))) if faults else (),
        payload_losses=tuple(draw(st.lists(crashes, max_size=3))) if faults else (),
        memory=tuple(draw(st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.5, 1.0)), max_size=3))),
        latency_s=draw(st.sampled_from([0.0, 0.0, 0.0003, 0.02])),
        commit_failures=draw(st.sampled_from([0, 0, 1])) if faults else 0,
        setup_failures=draw(st.sampled_from([0, 0, 2])) if faults else 0,
        stream_blocks=blocks,
        late_close=draw(st.booleans()),
        seed=draw(st.integers(0, 1000)),
    )
    return Scenario(spec, units, behaviour)


def run(scenario: Scenario, *, logged: bool = False) -> SimResult:
    """Run it with all invariants checked after every step; a deadlock or a broken rule raises."""
    result = simulate(scenario.spec, scenario.units, scenario.behaviour, logged=logged, max_events=200_000)
    event(f"events 10^{len(str(result.events)) - 1}")
    return result


def assert_complete(scenario: Scenario, result: SimResult) -> None:
    """Every unit is committed once, its sink saw each record once and in order, and every payload was released."""
    assert result.status == "finished"
    expected = scenario.expected_units()
    assert set(result.committed) == set(expected)
    for unit, entry in expected.items():
        seen = expected_at_sink(scenario.spec, unit, entry, scenario.behaviour)
        assert result.committed[unit] == seen, f"the sink of {unit} saw something else"
    assert result.leaked == 0


@EXAMPLES
@given(scenarios(faults=False))
def test_every_run_ends_with_each_unit_committed_once_and_each_record_written_once_in_order(scenario: Scenario) -> None:
    result = run(scenario)
    assert_complete(scenario, result)
    assert set(result.commit_count.values()) <= {1}


@EXAMPLES
@given(scenarios())
def test_deaths_and_failures_lose_nothing_and_repeat_nothing(scenario: Scenario) -> None:
    assert_complete(scenario, run(scenario))


@settings(EXAMPLES, max_examples=150)
@given(scenarios(barrier=True))
def test_with_a_barrier_between_ops_every_run_ends_too(scenario: Scenario) -> None:
    assert_complete(scenario, run(scenario))


@settings(EXAMPLES, max_examples=150)
@given(scenarios(), st.floats(0.0, 1.0))
def test_a_stopped_run_ends_and_what_it_committed_is_complete(scenario: Scenario, stop_s: float) -> None:
    result = run(replace(scenario, behaviour=replace(scenario.behaviour, stop_s=stop_s)))
    assert result.status in ("stopped", "finished")
    for unit, seen in result.committed.items():
        entry = scenario.expected_units()[unit]
        assert seen == expected_at_sink(scenario.spec, unit, entry, scenario.behaviour)


@settings(EXAMPLES, max_examples=150)
@given(scenarios())
def test_replaying_the_log_gives_the_same_actions(scenario: Scenario) -> None:
    assert replay(run(scenario, logged=True).log) is None
