# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of anybody, at each named point around a commit and at random moments: the output is that of a calm run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.conftest import Disturb
from tests.faults.disturbed import Scene
from tests.faults.injected.sitecustomize import POINTS
from tests.faults.storms import kill, storm

ONCE = ("before-units", "before-manifest", "after-manifest", "before-report", "before-run-state")
"""Points that a run passes once."""
OF_THE_DRIVER = tuple(point for point in POINTS if point.split("-", 1)[1].startswith(("fold", "inbox", "units", "run")))


def shape_for(point: str) -> str:
    return "own-workers" if "join" in point or "fold" in point else "one-call"


@pytest.mark.parametrize("point", [point for point in POINTS if "copy" not in point])
def test_a_process_that_dies_at_a_point_of_the_commit_loses_and_repeats_nothing(disturb: Disturb, point: str) -> None:
    nth = 1 if point in ONCE or "fold" in point or "join" in point else 2
    run = disturb(shape_for(point), DIE_AT=point, DIE_AT_NTH=str(nth), SLOW_S="0.02")
    ends = run.finish()
    assert (run.folder / "markers" / f"{point}-{nth}").exists(), "somebody died there"
    if point in OF_THE_DRIVER:
        assert [code for code, _ in ends] == [-9, 0]
    assert run.differences().is_clean(), run.tally


@pytest.mark.parametrize(("shape", "nth"), [("two-files", 1), ("two-files", 2), ("two-files", 3), ("tokens", 1)])
def test_a_process_that_dies_between_the_files_of_a_unit_loses_and_repeats_nothing(
    disturb: Disturb, shape: str, nth: int
) -> None:
    run = disturb(shape, DIE_AT="after-rename", DIE_AT_NTH=str(nth), SLOW_S="0.02")
    run.finish()
    assert (run.folder / "markers" / f"after-rename-{nth}").exists(), "somebody died there"
    assert run.differences().is_clean(), run.tally


def test_a_killed_run_that_writes_token_ids_ends_with_the_same_files(disturb: Disturb) -> None:
    run = disturb("tokens", SLOW_S="0.05")
    for victim in ("driver", "worker"):
        attempt = run.start()
        attempt.wait_for_files(run.count_files() + 4)
        assert kill(attempt, victim, random.Random(1))
        attempt.finish()
    run.finish()
    assert run.differences().is_clean(), run.tally


@pytest.mark.parametrize("shape", ["one-call", "own-workers", "phases", "outlets"])
@pytest.mark.parametrize("victim", ["worker", "all workers", "zygote", "driver"])
def test_whoever_is_killed_in_the_middle_nothing_is_lost(disturb: Disturb, victim: str, shape: str) -> None:
    run = disturb(shape, SLOW_S="0.05")
    attempt = run.start()
    attempt.wait_for_files(2)
    assert kill(attempt, victim, random.Random(1))
    code, _ = attempt.finish()
    assert (code == -9) == (victim == "driver")
    run.finish()
    assert run.differences().is_clean(), run.tally


def test_all_workers_die_again_and_again_and_every_attempt_goes_on_where_the_last_ended(disturb: Disturb) -> None:
    run = disturb(SLOW_S="0.05")
    done = 0
    for _ in range(3):
        attempt = run.start()
        attempt.wait_for_files(done + 2)
        kill(attempt, "all workers", random.Random(2))
        kill(attempt, "driver", random.Random(2))
        attempt.finish()
        done = run.count_files()
    *_, (_, said) = run.finish()
    assert "resuming: " in said
    assert run.differences().is_clean(), run.tally


def test_six_random_kills_lose_nothing(scene: Scene, tmp_path: Path) -> None:
    killed, tally = storm(scene, tmp_path / "storm", 6, seed=4)
    assert killed.total() >= 6
    assert tally.is_clean(), tally


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(10))
def test_two_hundred_random_kills_lose_nothing(scene: Scene, tmp_path: Path, seed: int) -> None:
    killed, tally = storm(scene, tmp_path / "storm", 20, seed=100 + seed)
    assert killed.total() >= 20
    assert tally.is_clean(), tally
