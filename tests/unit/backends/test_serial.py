# SPDX-License-Identifier: Apache-2.0
"""What the serial executor cannot do is refused, never ignored."""

from __future__ import annotations

import signal

import pytest

from thresher import Pipeline, ProcessingStage, SerialExecutor, Task
from thresher.errors import UnsupportedError


class Same(ProcessingStage[Task, Task]):
    name = "same"

    def process(self, task: Task) -> Task:
        return task


def test_a_time_limit_for_calls_is_refused_because_nobody_could_end_them() -> None:
    pipeline = Pipeline("p", stages=[Same().with_(timeout_s=1.0)])
    with pytest.raises(UnsupportedError, match=r"'serial' does not honour same\.timeout_s=1\.0: .*honoured by: local"):
        pipeline.run(SerialExecutor(), initial_tasks=[Task(data=1)], ledger=False, progress="none")


class Interrupting(ProcessingStage[Task, Task]):
    """Receives so many signals while it works."""

    name = "interrupting"

    def __init__(self, signals: int) -> None:
        self.signals = signals

    def process(self, task: Task) -> Task:
        for _ in range(self.signals):
            signal.raise_signal(signal.SIGINT)
        raise KeyboardInterrupt


def test_an_interrupt_that_a_stage_raises_itself_is_a_failure_of_its_task() -> None:
    result = Pipeline("p", stages=[Interrupting(0)]).run(
        SerialExecutor(), initial_tasks=[Task(data=1)], ledger=False, progress="none", max_errors="100%"
    )
    assert result.counts["quarantined"] == 1


@pytest.mark.parametrize("signals", [1, 3], ids=["after-the-task", "at-once"])
def test_ctrl_c_ends_the_run_also_where_a_stage_runs(signals: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        Pipeline("p", stages=[Interrupting(signals)]).run(
            SerialExecutor(), initial_tasks=[Task(data=1)], ledger=False, progress="none", max_errors="100%"
        )
