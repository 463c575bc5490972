# SPDX-License-Identifier: Apache-2.0
"""A run may die between any two things that it does to the disk; the next attempt must make the same files of it."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ledger.runs import commit_all, request, result_of, units, whole_run
from thresher.ledger.folder.opening import open_run
from thresher.ledger.folder.request import RunRequest

STEPS = ("replace", "rename", "link", "unlink", "fsync", "fdatasync", "write", "makedirs", "rmdir", "ftruncate")
PROJECT = Path(__file__).parents[3]


class Death(BaseException):
    """What a process sees of its own death: nothing more happens."""


class Mortal:
    """Lets so many things happen to the disk, then none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
        self.left = steps
        self.happened = 0
        for name in STEPS:
            monkeypatch.setattr(os, name, self._guarded(getattr(os, name)))

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self.happened >= self.left:
                raise Death
            self.happened += 1
            return function(*args, **kwargs)

        return guarded


def dies_after(asked: RunRequest, steps: int) -> bool:
    """One attempt that dies after so many steps; whether it did."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        mortal = Mortal(monkeypatch, steps)
        run = None
        try:
            run = open_run(asked)
            commit_all(run, units(2))
            run.finish("finished", 0)
            return False
        except Death:
            return True
        finally:
            mortal.left = 10**9
            if run is not None and run._folder is not None:
                run._folder.lock.release()  # the kernel does it when a process dies


@pytest.fixture
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The death of a process loses nothing that the kernel has."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)


# Who dies closes no files.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("_no_waiting_for_the_disk")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"target_file_size": 1000},
        {"fresh": True},
        {"mode": "overwrite", "fingerprint": {"version": "new"}},
    ],
    ids=["plain", "joined", "fresh", "overwrite"],
)
def test_a_run_that_dies_at_any_step_ends_as_if_it_had_not(tmp_path: Path, changes: dict[str, Any]):
    if "fresh" in changes or "mode" in changes:
        whole_run(request(tmp_path / "before"), 3)
    for steps in itertools.count():
        out = tmp_path / f"{steps}"
        if (tmp_path / "before").exists():
            shutil.copytree(tmp_path / "before", out)
        died = dies_after(request(out, **changes), steps)
        whole_run(request(out, **changes), 2)
        if steps == 0:
            expected = result_of(out)
        assert result_of(out) == expected, f"the run died after {steps} steps"
        shutil.rmtree(out)
        if not died:
            assert steps > 20
            return


KILLED = """
import sys
from tests.unit.ledger.runs import commit, request, units
from thresher.ledger.folder.opening import open_run

run = open_run(request(sys.argv[1]))
run.before_first_commit()
for unit in units(500):
    if unit.id not in run.committed:
        commit(run, unit)
        run.fold(unit.id)
        if unit.order[1] % 7 == 3:
            run.sync()
        print(unit.id, flush=True)
"""


def start(out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", KILLED, str(out)], cwd=PROJECT, stdout=subprocess.PIPE, text=True)


def test_what_a_killed_process_had_committed_is_there_once_and_whole(tmp_path: Path):
    out = tmp_path / "out"
    for so_many in (1, 10, 23):
        process = start(out)
        assert process.stdout is not None
        told = [process.stdout.readline().strip() for _ in range(so_many)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()

        run = open_run(request(out))
        assert set(told) <= set(run.committed), "what was told is committed"
        run.abandon(1)

    done = len(open_and_close(out))
    whole_run(request(out), done)
    whole_run(request(tmp_path / "at-once"), done)
    assert result_of(out) == result_of(tmp_path / "at-once")


def open_and_close(out: Path) -> list[str]:
    run = open_run(request(out))
    committed = sorted(run.committed)
    run.abandon(1)
    return committed


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path):
    process = start(tmp_path / "out")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGSTOP)  # alive, and certain not to end meanwhile
    try:
        second = start(tmp_path / "out")
        said, _ = second.communicate(timeout=100)
        assert said == ""
        assert second.returncode != 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    whole_run(request(tmp_path / "out"), 2)
