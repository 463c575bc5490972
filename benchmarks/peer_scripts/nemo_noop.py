# SPDX-License-Identifier: Apache-2.0
"""NeMo Curator on Xenna passes tasks through three stages that do nothing. Usage: nemo_noop.py TASKS

Prints, as JSON, how long the tasks took from the first to the last one out of the last stage, start-up left out.
"""

import json
import sys
import time
from dataclasses import dataclass

from nemo_cluster import two_cpu_cluster


def main() -> None:
    with two_cpu_cluster():
        from nemo_curator.backends.xenna import XennaExecutor
        from nemo_curator.pipeline import Pipeline
        from nemo_curator.stages.base import ProcessingStage
        from nemo_curator.stages.resources import Resources
        from nemo_curator.tasks import Task

        @dataclass
        class TinyTask(Task[float]):
            @property
            def num_items(self) -> int:
                return 1

            def validate(self) -> bool:
                return True

        class Noop(ProcessingStage[TinyTask, TinyTask]):
            def inputs(self) -> tuple[list[str], list[str]]:
                return [], []

            def outputs(self) -> tuple[list[str], list[str]]:
                return [], []

            def process(self, task: TinyTask) -> TinyTask:
                task.data = time.time()
                return task

        tasks = int(sys.argv[1])
        pipeline = Pipeline(name="noop")
        for number in range(3):
            pipeline.add_stage(Noop().with_(name=f"noop{number}", resources=Resources(cpus=0.5)))
        started = time.time()
        outputs = pipeline.run(
            XennaExecutor({"cpu_allocation_percentage": 1.0}),
            initial_tasks=[TinyTask("tiny", 0.0) for _ in range(tasks)],
        )
        ended = time.time()
    finished = [task.data for task in outputs]
    figures = {
        "tasks": len(finished),
        "first_to_last_s": max(finished) - min(finished),
        "first_after_s": min(finished) - started,
        "run_s": ended - started,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
