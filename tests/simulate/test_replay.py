# SPDX-License-Identifier: Apache-2.0
"""A log is replayed to the same actions, and the first difference is named."""

from __future__ import annotations

import pytest

from thresher.scheduler.model import OpSpec, RunSpec, UnitSpec
from thresher.simulate.recorded import LogError, replay
from thresher.simulate.scenario import Behaviour, OpBehaviour, simulate


@pytest.fixture(scope="module")
def log() -> tuple[bytes, ...]:
    """The log of a small run with a death."""
    ops = (
        OpSpec(index=0, name="read", source=True, next=1, output_bytes=100),
        OpSpec(index=1, name="write", sink=True, ordered=True),
    )
    spec = RunSpec(ops=ops, shared_workers=2, budget_bytes=1_000)
    behaviour = Behaviour((OpBehaviour(fan_out=(3, 9), generator=True), OpBehaviour()), crashes=((0.2, 1),))
    return simulate(spec, [UnitSpec(f"u{n}", (n, 0), 0) for n in range(6)], behaviour, logged=True).log


def test_the_log_of_a_run_replays_without_difference(log: tuple[bytes, ...]) -> None:
    assert replay(log) is None


def test_a_log_that_ends_in_the_middle_is_compared_as_far_as_it_goes(log: tuple[bytes, ...]) -> None:
    for end in range(1, len(log)):
        assert replay(log[:end]) is None


def test_the_first_action_that_differs_is_named_with_its_line(log: tuple[bytes, ...]) -> None:
    at = next(n for n, line in enumerate(log) if b'"Dispatch"' in line)
    changed = [*log[:at], log[at].replace(b'"op":0', b'"op":1'), *log[at + 1 :]]
    difference = replay(changed)
    assert difference is not None
    assert difference.n == at
    assert "op=1" in difference.logged
    assert "op=0" in difference.replayed
    assert str(difference).startswith(f"line {at}: the log says Dispatch")


def test_a_missing_action_and_an_additional_one_are_differences(log: tuple[bytes, ...]) -> None:
    at = next(n for n, line in enumerate(log) if b'"Commit"' in line)
    assert replay([*log[:at], *log[at + 1 :]]) is not None
    assert replay([*log[: at + 1], log[at], *log[at + 1 :]]) is not None


def test_a_log_that_cannot_be_replayed_says_why(log: tuple[bytes, ...]) -> None:
    with pytest.raises(LogError, match="empty"):
        replay([])
    with pytest.raises(LogError, match="start line"):
        replay(log[1:])
    with pytest.raises(LogError, match="line 3 is not"):
        replay([*log[:3], b'{"n": 3, "t": 0.1, "event": "TaskDon'])
    with pytest.raises(LogError, match="second start line"):
        replay([log[0], log[0]])
