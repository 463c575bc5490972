# SPDX-License-Identifier: Apache-2.0
"""Code of users in worker processes: what they may do, and what they are told when they may not."""

from __future__ import annotations

from tests.faults.conftest import Start


def test_prints_of_stages_go_to_stderr_so_that_stdout_holds_results_alone(start: Start) -> None:
    script = start(
        """
        @processing_stage(name="chatty")
        def chatty(task):
            print(f"hello from {task.data}")
            return task

        stages, tasks = [chatty], [Task(data="a stage")]
        """,
        then="print('result')",
    )
    code, out, err = script.finish()
    assert (code, out) == (0, "result\n")
    assert "hello from a stage\n" in err


def test_a_script_needs_no_main_guard_and_is_not_run_again(start: Start) -> None:
    script = start(
        """
        print("the script runs")

        class Mine(Task):
            def __init__(self, word):
                super().__init__(data=word)

        class Shout(ProcessingStage[Mine, Mine]):
            def process(self, task):
                assert type(task) is Mine
                return Mine(task.data.upper())

        stages, tasks = [Shout(), Shout()], [Mine("a"), Mine("b")]
        """,
        then="print([task.data for task in run], {type(task) is Mine for task in run})",
    )
    assert script.output() == "the script runs\n['A', 'B'] {True}\n"


def test_classes_inside_functions_travel(start: Start) -> None:
    script = start(
        """
        def make():
            class Inner(Task):
                pass

            @processing_stage(name="inner")
            def stage(task):
                return Inner(data=lambda: task.data + 1)
            return stage

        stages, tasks = [make()], [Task(data=1)]
        """,
        then="print([task.data() for task in run])",
    )
    assert script.output() == "[2]\n"


def test_a_stage_that_keeps_a_slice_never_sees_it_change(start: Start) -> None:
    """The segments of an arena are used again all the time; what somebody still looks at is not among them."""
    script = start(
        """
        import pyarrow as pa
        from thresher.core.documents.batch import DocumentBatch

        class Fill(ProcessingStage[Task, DocumentBatch]):
            def process(self, task):
                for n in range(task.data):
                    yield DocumentBatch(pa.table({"text": [chr(97 + n % 26) * 30_000] * 3}))

        class Keep(ProcessingStage[DocumentBatch, Task]):
            def setup(self, worker_metadata=None):
                self.kept = []

            def process(self, task):
                column = task.to_pyarrow().column("text").chunk(0)
                self.kept.append((column[0].as_py()[0], column.slice(1, 1)))
                wrong = [first for first, kept in self.kept if set(kept[0].as_py()) != {first}]
                self.kept = self.kept[-5:]
                return Task(data=wrong)

        stages, tasks = [Fill(), Keep()], [Task(data=150)]
        """,
        then="print(len(run), [task.data for task in run if task.data])",
    )
    assert script.output() == "150 []\n"


def test_what_cannot_be_sent_to_workers_is_refused_with_a_way_out(start: Start) -> None:
    script = start(
        """
        import threading

        class Locked(ProcessingStage[Task, Task]):
            def __init__(self):
                self.lock = threading.Lock()

            def process(self, task):
                return task

        stages, tasks = [Locked()], [Task(data=1)]
        """,
    )
    code, _, err = script.finish()
    assert code == 1
    assert "PlanError: the stages cannot be sent to workers" in err
    assert "setup()" in err


def test_a_module_that_cannot_be_imported_by_workers_is_named(start: Start) -> None:
    script = start(
        """
        import os, pathlib, sys
        pathlib.Path("fleeting.py").write_text(
            "from thresher.core.stage import ProcessingStage\\n"
            "class Stage(ProcessingStage):\\n    def process(self, task):\\n        return task\\n")
        import fleeting
        os.unlink("fleeting.py")
        stages, tasks = [fleeting.Stage()], [Task(data=1)]
        """,
    )
    code, _, err = script.finish()
    assert code == 1
    assert "No module named 'fleeting'" in err


def test_setup_on_node_runs_once_and_before_any_setup(start: Start) -> None:
    script = start(
        """
        import os

        class Stage(ProcessingStage[Task, Task]):
            def setup_on_node(self, node_info=None, worker_metadata=None):
                with open("log", "a") as log:
                    log.write("node\\n")

            def setup(self, worker_metadata=None):
                with open("log", "a") as log:
                    log.write("setup\\n")

            def process(self, task):
                return task

        stages, tasks = [Stage()], [Task(data=n) for n in range(10)]
        """,
        then="lines = open('log').read().split(); print(lines[0], lines.count('node'))",
    )
    assert script.output() == "node 1\n"


def test_teardown_runs_in_every_worker_that_was_set_up(start: Start) -> None:
    script = start(
        """
        class Stage(ProcessingStage[Task, Task]):
            def setup(self, worker_metadata=None):
                open(f"setup-{worker_metadata.worker_id}", "w").close()

            def process(self, task):
                self.worker = True
                return task

            def teardown(self):
                with open("torn-down", "a") as log:
                    log.write("x")

        stages, tasks = [Stage()], [Task(data=n) for n in range(10)]
        """,
        then="import glob; print(len(glob.glob('setup-*')) == len(open('torn-down').read()))",
    )
    assert script.output() == "True\n"


def test_a_module_that_starts_threads_is_no_danger_to_workers(start: Start) -> None:
    """A fork copies one thread; with more than one, workers are started afresh."""
    script = start(
        """
        import pathlib, sys
        pathlib.Path("threaded.py").write_text(
            "import threading\\n"
            "lock = threading.Lock()\\n"
            "def hold():\\n"
            "    lock.acquire()\\n"
            "    threading.Event().wait()\\n"
            "threading.Thread(target=hold, daemon=True).start()\\n"
            "def threads():\\n"
            "    return threading.active_count()\\n")
        import threaded

        @processing_stage(name="counts-threads")
        def counts(task):
            return Task(data=threaded.threads())

        stages, tasks = [counts], [Task(data=1)]
        """,
        then="print([task.data for task in run])",
    )
    assert script.output() == "[2]\n"


def test_variables_that_the_user_set_are_what_stages_see(start: Start) -> None:
    script = start(
        """
        import os
        os.environ["OMP_NUM_THREADS"] = "3"

        @processing_stage(name="environment")
        def environment(task):
            return Task(data=os.environ.get("OMP_NUM_THREADS"))

        stages, tasks = [environment], [Task(data=1)]
        """,
        then="print([task.data for task in run])",
    )
    assert script.output() == "['3']\n"
