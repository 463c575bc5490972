# SPDX-License-Identifier: Apache-2.0
"""What the serial executor cannot do is refused, never ignored."""

from __future__ import annotations

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
