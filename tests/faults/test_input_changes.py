# SPDX-License-Identifier: Apache-2.0
"""Input that is deleted, cut short or grows in the middle of the run: said by name, and nothing wrong is written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import Disturb
from tests.faults.disturbed import Disturbed, Scene


def delete(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"n": "late", "text": "a record that came too late to be read by this run"}\n')


@pytest.fixture
def run(disturb: Disturb, scene: Scene, tmp_path: Path) -> Disturbed:
    """A run over input of its own."""
    run = disturb(SLOW_S="0.1")
    run.input = scene.copy_input(tmp_path / "own-input")
    return run


@pytest.mark.parametrize("name", ["part-2.jsonl", "part-3.jsonl.gz"])
@pytest.mark.parametrize("change", [delete, truncate, grow], ids=lambda change: change.__name__)
def test_input_that_changes_during_the_run_is_named_and_put_back_gives_the_same_output(
    run: Disturbed, scene: Scene, change: Callable[[Path], None], name: str
) -> None:
    attempt = run.start()
    attempt.wait_for_files(1)
    change(run.input / name)
    code, said = attempt.finish()
    assert code in (1, 3, 4), said
    assert name in said
    assert "Traceback" not in said
    shutil.copy2(scene.input / name, run.input / name)
    run.finish()
    assert run.differences().is_clean(), run.tally


def test_input_that_changed_between_two_attempts_is_refused_with_what_changed(run: Disturbed, scene: Scene) -> None:
    attempt = run.start()
    attempt.wait_for_files(2)
    attempt.kill()
    attempt.finish()
    grow(run.input / "part-2.jsonl")
    code, said = run.start().finish()
    assert code == 4, said
    assert "part-2.jsonl" in said
    assert "--accept-changes" in said
    shutil.copy2(scene.input / "part-2.jsonl", run.input / "part-2.jsonl")
    run.finish()
    assert run.differences().is_clean(), run.tally
