# SPDX-License-Identifier: Apache-2.0
"""A worker that takes too much memory is replaced, or fails alone; never the run, never a record that is not to blame.

Each run is a script of its own, because the memory of the driver counts too."""

from __future__ import annotations

import pytest

from tests.faults.conftest import Start

LEAK = """
        import pathlib, time

        class Leak(ProcessingStage[Task, Task]):
            def setup(self, worker_metadata=None):
                self.me = worker_metadata.worker_id
                self.kept = []
                pathlib.Path(f"begun-{{self.me}}").touch()

            def process(self, task):
                self.kept.append(b"x" * {leaked_bytes})
                time.sleep(0.01)  # the work
                return Task(data=self.me)

            def teardown(self):
                pathlib.Path(f"ended-{{self.me}}").touch()

        stages, tasks = [Leak().with_(num_workers={num_workers})], [Task(data=n) for n in range({tasks})]
        """
COUNT = """
workers = {task.data for task in run}
print(len(workers) > 1, run.counts["written"], run.counts["quarantined"])
"""


@pytest.mark.parametrize("num_workers", [1, None], ids=["own-worker", "shared-worker"])
@pytest.mark.parametrize(("tasks", "leaked_bytes"), [(400, 3_000_000), (12, 100_000_000)])
def test_a_worker_that_grows_is_replaced_before_a_record_suffers(
    start: Start, tasks: int, leaked_bytes: int, num_workers: int | None
) -> None:
    """The tasks leave 1.2 GB behind; the run may use 600 MB."""
    text = LEAK.format(tasks=tasks, leaked_bytes=leaked_bytes, num_workers=num_workers)
    script = start(text, executor="LocalExecutor(workers=1, memory='600MB')", then=COUNT)
    assert script.output() == f"True {tasks} 0\n"
    begun, ended = ({path.name[6:] for path in script.folder.glob(what)} for what in ("begun-*", "ended-*"))
    assert begun == ended, "every worker that was set up was torn down"


def test_a_task_that_takes_too_much_fails_alone_and_its_worker_goes_on(start: Start) -> None:
    script = start(
        """
        import os

        class Greedy(ProcessingStage[Task, Task]):
            def process(self, task):
                if task.data == 7:
                    bytearray(1_000_000_000)
                return Task(data=(task.data, os.getpid()))

        stages, tasks = [Greedy()], [Task(data=n) for n in range(20)]
        """,
        executor="LocalExecutor(workers=1, memory='600MB')",
        then="""
print([n for n, _ in (task.data for task in run)] == [n for n in range(20) if n != 7])
print(len({pid for _, pid in (task.data for task in run)}), run.counts["quarantined"])
""",
    )
    assert script.output() == "True\n1 1\n"


HOARD = """
        import os
        from thresher import Resources

        class Hoard(ProcessingStage[Task, Task]):
            def setup(self, worker_metadata=None):
                self.index = b"x" * 600_000_000

            def process(self, task):
                return Task(data=os.getpid())

        stages = [Hoard().with_(num_workers=1{more})]
        tasks = [Task(data=n) for n in range(200)]
        """


def test_a_model_that_is_too_large_for_its_worker_is_told_how_to_ask_for_memory(start: Start) -> None:
    script = start(HOARD.format(more=""), executor="LocalExecutor(workers=1, memory='600MB')")
    code, _, err = script.finish()
    assert code == 1
    assert "MemoryError" in err
    assert "Resources(memory_gb=…)" in err


def test_a_model_whose_memory_was_asked_for_is_no_growth(start: Start) -> None:
    script = start(
        HOARD.format(more=", resources=Resources(memory_gb=0.6)"),
        executor="LocalExecutor(workers=1, memory='2GB')",
        then="print(len({task.data for task in run}), len(run))",
    )
    assert script.output() == "1 200\n"
