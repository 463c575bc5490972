# SPDX-License-Identifier: Apache-2.0
"""Scripts of users, run as they would run them, and a look at the processes they leave."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.faults.disturbed import Disturbed, Scene

PATIENCE_S = 100.0
"""How long something may take that must happen; a limit for a hang, not a measure of speed."""

Start = Callable[..., "Script"]

HEAD = """
from thresher.backends.local import LocalExecutor
from thresher.core.pipeline import Pipeline
from thresher.core.function_stage import processing_stage
from thresher.core.stage import ProcessingStage
from thresher.core.task import Task
"""


RUN = """
run = Pipeline('p', stages=stages).run({executor}, initial_tasks=tasks, ledger=False, progress='none')
{then}
"""


class Script:
    """A user's script that runs."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        # Files, not pipes: what a script leaves behind would keep a pipe open.
        with (self.folder / "stdout").open("w") as out, (self.folder / "stderr").open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(path)], cwd=path.parent, stdout=out, stderr=err, start_new_session=True
            )

    def finish(self) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        code = self.process.wait(timeout=PATIENCE_S)
        return code, (self.folder / "stdout").read_text(), (self.folder / "stderr").read_text()

    def output(self) -> str:
        """What a script that must succeed prints."""
        code, out, err = self.finish()
        assert code == 0, err
        return out

    def descendants(self) -> list[psutil.Process]:
        """All processes below the script."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def wait_for_file(self, name: str) -> None:
        """Until the script (or a worker) has made a file."""
        wait_until(lambda: (self.folder / name).exists() or self.process.poll() is not None, f"{name} to appear")
        assert (self.folder / name).exists(), self.finish()[2]

    def wait_for_descendants(self, at_least: int) -> list[psutil.Process]:
        """Until so many processes are there."""
        wait_until(lambda: len(self.descendants()) >= at_least, f"{at_least} processes")
        return self.descendants()


def wait_until(happened: Callable[[], bool], what: str) -> None:
    """Until something has happened."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {what}"
        time.sleep(0.02)


def wait_until_gone(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Until none of the processes is left (a zombie that nobody reaps counts as gone); those that are left: none."""

    def lives(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    wait_until(lambda: not any(lives(process) for process in processes), f"the end of {processes}")
    return [process for process in processes if lives(process)]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Write a script that sets `stages` and `tasks`, runs them, and does what `then` says; start it."""
    scripts: list[Script] = []

    def run(text: str, *, then: str = "", executor: str = "LocalExecutor(workers=2)") -> Script:
        path = tmp_path / "script.py"
        path.write_text(HEAD + textwrap.dedent(text) + RUN.format(then=then, executor=executor))
        scripts.append(Script(path))
        return scripts[-1]

    yield run
    for script in scripts:
        if script.process.poll() is None:
            os.killpg(script.process.pid, 9)
            script.process.wait()


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """One input, and what undisturbed runs make of it."""
    return Scene(tmp_path_factory.mktemp("scene") / "scene")


Disturb = Callable[..., Disturbed]


@pytest.fixture
def disturb(scene: Scene, tmp_path: Path) -> Iterator[Disturb]:
    """Make a run that something will happen to; whatever it leaves running ends with the test."""
    runs: list[Disturbed] = []

    def make(shape: str = "one-call", **environment: str) -> Disturbed:
        runs.append(scene.disturbed(tmp_path / f"run-{len(runs)}", shape, **environment))
        return runs[-1]

    yield make
    for run in runs:
        for pid in run.left_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
