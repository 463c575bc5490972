# SPDX-License-Identifier: Apache-2.0
"""A machine that is overloaded or suspended: good records take long by the clock, and none of them is set aside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import Start
from tests.faults.test_isolation import ERRORS, FAULTS, OwnWorkers, Poisoned, check, run, set_aside, write_input

HOGS_PER_CORE = 2
WORK_S = 0.2
"""CPU time of a good record: below the limit of the tests, and far above it by the clock beside the hogs."""


def spin() -> None:
    """A call that never comes back and always wants a core."""
    while True:
        pass


def work() -> None:
    """A good record that needs a core for a while."""
    started = time.thread_time()
    while time.thread_time() - started < WORK_S:
        pass


class Works(Poisoned):
    """Does what the field `poison` of a record says."""

    def process(self, task):  # type: ignore[no-untyped-def]  # as the stage that it is made of
        FAULTS.update(spin=spin, work=work)
        return super().process(task)


class WorksAlone(OwnWorkers, Works):
    """The same with workers of its own."""


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Keep all cores busy within this block."""
    count = HOGS_PER_CORE * len(os.sched_getaffinity(0))
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@pytest.mark.timeout(400)  # a limit for a hang; the hogs slow down the test, too
@pytest.mark.parametrize(
    ("stage", "hanging"),
    [(Works, {3: "hang", 12: "hang in C", 28: "spin"}), (WorksAlone, {3: "hang in C"})],
    ids=["shared", "own-workers"],
)
def test_beside_hogs_on_all_cores_only_records_that_hang_are_set_aside(
    tmp_path: Path, stage: type[Poisoned], hanging: dict[int, str]
) -> None:
    ERRORS["spin"] = "timeout"
    write_input(tmp_path / "in", hanging | dict.fromkeys((8, 24), "work"), 30)
    with busy_cores():
        run(tmp_path, stage(timeout_s=0.5))
    check(tmp_path, hanging, 30)
    assert all(entry["attempts"] == 2 for entry in set_aside(tmp_path).values()), "each of them hung alone, twice"


def test_a_run_that_is_suspended_in_the_middle_of_a_call_sets_nothing_aside(start: Start) -> None:
    """The stage lets the run be stopped for longer than a call may take, each time that it is called."""
    script = start(
        """
        import os, subprocess

        class Suspended(ProcessingStage[Task, Task]):
            timeout_s = 1.0

            def process(self, task):
                worker, zygote = os.getpid(), os.getppid()
                with open(f"/proc/{zygote}/stat") as stat:
                    driver = int(stat.read().rpartition(")")[2].split()[1])
                tree = f"{driver} {zygote} {worker}"
                command = f"kill -STOP {tree}; sleep 2; kill -CONT {tree}"
                subprocess.run(["sh", "-c", command], start_new_session=True, check=True)
                return task

        stages, tasks = [Suspended()], [Task(data=n) for n in range(2)]
        """,
        then="print(run.counts['written'], run.counts['quarantined'])",
        executor="LocalExecutor(workers=1)",
    )
    assert script.output() == "2 0\n"
