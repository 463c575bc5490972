# SPDX-License-Identifier: Apache-2.0
"""Whatever dies, the run goes on or ends, and nothing is left behind."""

from __future__ import annotations

import os
import signal

import psutil

from tests.faults.conftest import Start, wait_until_gone


def test_a_killed_worker_is_replaced_and_the_run_goes_on(start: Start) -> None:
    script = start(
        """
        import os, pathlib, signal

        @processing_stage(name="deadly")
        def deadly(task):
            marker = pathlib.Path("died")
            if task.data == 7 and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return Task(data=task.data * 2)

        stages, tasks = [deadly], [Task(data=n) for n in range(20)]
        """,
        then="print([task.data for task in run])",
    )
    assert script.output() == f"{[n * 2 for n in range(20)]}\n"
    assert (script.folder / "died").exists()


def test_a_task_that_ends_its_worker_every_time_is_set_aside_with_its_reason(start: Start) -> None:
    script = start(
        """
        import os

        @processing_stage(name="deadly")
        def deadly(task):
            if task.data == 1:
                os._exit(3)
            return task

        stages, tasks = [deadly], [Task(data=n) for n in range(3)]
        """,
        then="print(run.to_dict()['quarantine_reasons'])",
    )
    assert script.output() == "{'deadly/worker-crashed': 1}\n"


def test_payloads_of_a_dead_worker_stay_readable(start: Start) -> None:
    """1. A worker makes large payloads. 2. It is killed before they are read. 3. Another worker reads them."""
    script = start(
        """
        import os, pathlib, signal

        class Make(ProcessingStage[Task, Task]):
            def process(self, task):
                return Task(data=bytes([task.data]) * 1_000_000)

        class Check(ProcessingStage[Task, Task]):
            def process(self, task):
                if task.data[0] == 5 and not os.path.exists("died"):
                    pathlib.Path("died").touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                assert set(task.data) == {task.data[0]}
                return Task(data=(task.data[0], len(task.data)))

        stages, tasks = [Make(), Check()], [Task(data=n) for n in range(20)]
        """,
        then="print([task.data for task in run] == [(n, 1_000_000) for n in range(20)])",
        executor="LocalExecutor(workers=2, fusion=False)",
    )
    assert script.output() == "True\n"


def test_nothing_is_left_when_the_driver_is_killed(start: Start) -> None:
    script = start(
        """
        import pathlib, subprocess, time

        @processing_stage(name="slow")
        def slow(task):
            subprocess.Popen(["sleep", "600"])
            pathlib.Path("working").touch()
            time.sleep(600)

        stages, tasks = [slow], [Task(data=1), Task(data=2)]
        """,
    )
    script.wait_for_file("working")
    left = script.wait_for_descendants(5)  # the zygote, two workers, and what their stages started
    os.kill(script.process.pid, signal.SIGKILL)
    assert wait_until_gone(left) == []


def test_nothing_is_left_of_what_stages_started(start: Start) -> None:
    script = start(
        """
        import pathlib, subprocess

        @processing_stage(name="starter")
        def starter(task):
            return Task(data=subprocess.Popen(["sleep", "600"]).pid)

        stages, tasks = [starter], [Task(data=1), Task(data=2)]
        """,
        then="print(*[task.data for task in run])",
    )
    started = script.output().split()
    assert len(started) == 2
    wait_until_gone([psutil.Process(int(pid)) for pid in started if psutil.pid_exists(int(pid))])


def test_ctrl_c_while_workers_boot_ends_cleanly(start: Start) -> None:
    script = start(
        """
        @processing_stage(name="same")
        def same(task):
            return task

        stages, tasks = [same], [Task(data=1)]
        """,
    )
    left = script.wait_for_descendants(1)
    os.kill(script.process.pid, signal.SIGINT)
    code, _, err = script.finish()
    wait_until_gone(left)
    assert code in (0, -signal.SIGINT, 130), err
    assert "thresher-" not in err


def test_ctrl_c_in_the_middle_ends_all_processes_and_tells_only_the_driver(start: Start) -> None:
    script = start(
        """
        import pathlib, time

        @processing_stage(name="slow")
        def slow(task):
            pathlib.Path("working").touch()
            time.sleep(600)

        stages, tasks = [slow], [Task(data=1), Task(data=2)]
        """,
    )
    script.wait_for_file("working")
    left = script.descendants()
    os.killpg(script.process.pid, signal.SIGINT)  # as a terminal does
    code, _, err = script.finish()
    wait_until_gone(left)
    assert code in (-signal.SIGINT, 130), err
    assert err.count("Traceback") == 1


def test_a_killed_zygote_costs_its_workers_and_no_more(start: Start) -> None:
    script = start(
        """
        import os, pathlib, signal

        @processing_stage(name="ungrateful")
        def ungrateful(task):
            if task.data == 7 and not os.path.exists("died"):
                pathlib.Path("died").touch()
                os.kill(os.getppid(), signal.SIGKILL)
                signal.pause()
            return Task(data=task.data)

        stages, tasks = [ungrateful], [Task(data=n) for n in range(20)]
        """,
        then="print([task.data for task in run] == list(range(20)))",
    )
    assert script.output() == "True\n"


def test_a_grandchild_that_holds_the_socket_does_not_hide_the_death_of_its_worker(start: Start) -> None:
    script = start(
        """
        import os, pathlib, signal

        @processing_stage(name="forking")
        def forking(task):
            if task.data == 3 and not os.path.exists("died"):
                pathlib.Path("died").touch()
                if os.fork() == 0:
                    os.setsid()  # it leaves the worker's process group too
                    pathlib.Path("grandchild").write_text(str(os.getpid()))
                    signal.pause()
                while not os.path.exists("grandchild"):
                    pass
                os.kill(os.getpid(), signal.SIGKILL)
            return Task(data=task.data)

        stages, tasks = [forking], [Task(data=n) for n in range(10)]
        """,
        then="print([task.data for task in run] == list(range(10)))",
    )
    try:
        assert script.output() == "True\n"
    finally:
        os.kill(int((script.folder / "grandchild").read_text()), signal.SIGKILL)


TORN_DOWN = """
        import pathlib, time
        from thresher import Resources

        class Model(ProcessingStage[Task, Task]):
            resources = Resources(gpus=1)

            def setup(self, worker_metadata=None):
                pathlib.Path("set-up").touch()

            def process(self, task):
                pathlib.Path("working").touch()
                {work}

            def teardown(self):
                pathlib.Path("torn-down").touch()

        stages, tasks = [Model()], [Task(data=n) for n in range(4)]
        """
ONE_GPU = "LocalExecutor(workers=1, gpus=1)"


def test_a_dedicated_worker_is_torn_down_on_ctrl_c_in_the_middle_of_a_task(start: Start) -> None:
    script = start(TORN_DOWN.format(work="time.sleep(600)"), executor=ONE_GPU)
    script.wait_for_file("working")
    left = script.descendants()
    os.killpg(script.process.pid, signal.SIGINT)
    code, _, err = script.finish()
    wait_until_gone(left)
    assert code in (-signal.SIGINT, 130), err
    assert (script.folder / "torn-down").exists()
    assert err.count("Traceback") == 1


def test_a_dedicated_worker_is_torn_down_when_another_stage_fails_the_run(start: Start) -> None:
    text = TORN_DOWN.format(work="time.sleep(600)") + (
        """
        import os, threading

        class Deadly(ProcessingStage[Task, Task]):
            def process(self, task):
                if task.data == 0:
                    return Task(data=0)
                while not os.path.exists("working"):
                    time.sleep(0.01)
                return Task(data=threading.Lock())

        stages = [Deadly(), *stages]
        """
    )
    script = start(text, executor=ONE_GPU)
    code, _, err = script.finish()
    assert code == 1
    assert "cannot be sent to another process" in err
    assert (script.folder / "torn-down").exists()


def test_a_worker_that_ignores_every_request_to_end_is_killed(start: Start) -> None:
    work = """
                while True:
                    try:
                        time.sleep(600)
                    except BaseException:
                        pass"""
    script = start(TORN_DOWN.format(work=work), executor=ONE_GPU)
    script.wait_for_file("working")
    left = script.descendants()
    os.killpg(script.process.pid, signal.SIGINT)
    code, _, err = script.finish()
    wait_until_gone(left)
    assert code in (-signal.SIGINT, 130), err


def test_a_worker_that_the_kernel_killed_is_told_apart(start: Start) -> None:
    script = start(
        """
        import os, signal

        @processing_stage(name="hungry")
        def hungry(task):
            if task.data == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return task

        stages, tasks = [hungry], [Task(data=n) for n in range(3)]
        """,
        then="print(run.to_dict()['quarantine_reasons'])",
    )
    assert script.output() == "{'hungry/out-of-memory': 1}\n"
