# SPDX-License-Identifier: Apache-2.0
"""One run for `ray_executor.py`. Usage: ray_executor_run.py WORK EXECUTOR FOLDER INPUT…; prints JSON.

WORK is `copy`, `filter`, `tiny` or `accelerator`, EXECUTOR `local` or `ray` (one node with two CPUs). The time counts
from the first worker that is ready to the last event, so that neither Ray's start nor ours is in it.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import accelerator_run
import psutil
import tiny_tasks_run

from thresher import JsonlReader, JsonlWriter, LocalExecutor, Pipeline, Task, load_recipe
from thresher.observe.event_log import read_log

REST_S = 12.0
"""Age of this process when it begins."""
RECIPES = Path(__file__).resolve().parent / "recipes"


def make_executor(name: str, **options: Any) -> Any:
    """Two workers and one declared accelerator, on this machine or on a Ray node."""
    if name == "local":
        rest()
        return LocalExecutor(workers=2, gpus=1, **options)
    import ray

    from thresher.backends.ray import RayExecutor

    ray.init(
        address="local",
        num_cpus=2,
        num_gpus=1,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=10**9,
        logging_level=logging.ERROR,
    )
    rest()
    return RayExecutor(**options)


def rest() -> None:
    """Begin on both sides in the same state: Ray's own processes import for seconds after `ray.init`, and a virtual
    machine gives memory that has been free for seconds back to its host, and whoever writes there next pays for it."""
    age_s = time.time() - psutil.Process().create_time()
    time.sleep(max(0.0, REST_S - age_s))


def text_pipeline(work: str, sources: list[str], output: str) -> Pipeline:
    """Copy, or the English rules."""
    if work == "copy":
        return Pipeline("copy", stages=[JsonlReader(sources), JsonlWriter(output)])
    paths = {"input_path": sources, "output_path": output}
    return load_recipe(RECIPES / "english_22.yaml", paths).pipeline()


def from_first_worker(run_dir: str) -> float:
    """Seconds from the first worker that was ready to the last line of the log."""
    first, last = None, 0.0
    (attempt,) = Path(run_dir, "events").iterdir()
    for text in read_log(attempt):
        line = json.loads(text)
        if first is None and line.get("event") == "WorkerReady":
            first = line["t"]
        last = line.get("t", last)
    assert first is not None, "a run without a worker"
    return float(last - first)


def main(work: str, name: str, folder: str, inputs: list[str]) -> None:
    """Run, and tell how long it took or how busy the accelerator was."""
    run_dir = f"{folder}/run"
    if work == "accelerator":
        spans = f"{folder}/spans.json"
        Path(folder).mkdir(parents=True, exist_ok=True)
        stages = [accelerator_run.Before(), accelerator_run.Model(spans, spins=False), accelerator_run.After()]
        tasks = [Task(data=number) for number in range(int(inputs[0]))]
        Pipeline(work, stages=stages).run(make_executor(name), initial_tasks=tasks, progress="none", ledger=False)
        found = json.loads(Path(spans).read_text())
        busy = sum(end - start for start, end in found) / (found[-1][1] - found[0][0])
        print(json.dumps({"busy": busy}))
        return
    if work == "tiny":
        tasks = [Task(data=number) for number in range(int(inputs[0]))]
        pipeline = Pipeline(work, stages=[tiny_tasks_run.Noop().with_(name=f"noop{n}") for n in range(3)])
        pipeline.run(make_executor(name, fusion=False), initial_tasks=tasks, run_dir=run_dir, progress="none")
    else:
        text_pipeline(work, inputs, f"{folder}/output").run(make_executor(name), run_dir=run_dir, progress="none")
    print(json.dumps({"seconds": from_first_worker(run_dir)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
