# SPDX-License-Identifier: Apache-2.0
"""The six shapes of `shapes.py`, and one run of one of them.

Every stage notes the end of each task in one log: its place in the pipeline, the time, the number of the input and the
seconds that it was inside. At the end the CPU time of this process, the driver, is left beside the log.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from thresher import LocalExecutor, Pipeline, ProcessingStage, Resources, Task

WORKERS = 2
BURST_BLOCK = 20


@dataclass(frozen=True)
class Work:
    """The work of one stage of a shape on a task."""

    name: str  # of the stage
    spin_s: float = 0.0  # seconds on a core
    sleep_s: float = 0.0  # seconds of waiting: a device, or a slow disk
    gpus: float = 0.0  # devices of one worker; 0: shared workers do it
    setup_s: float = 0.0  # seconds until a worker is ready
    fan_out: int = 1  # tasks that it makes of one
    burst: int = 0  # of BURST_BLOCK inputs, in random order, only so many become anything; 0: all
    grows_by: float = 1.0  # its waiting is so many times longer from a certain input on

    @property
    def mean_fan_out(self) -> float:
        """Tasks that it makes of one, over all inputs."""
        return self.fan_out * (self.burst / BURST_BLOCK if self.burst else 1.0)


@dataclass(frozen=True)
class Shape:
    """A pipeline."""

    name: str  # for the command line
    title: str  # for tables
    stages: tuple[Work, ...]  # in order
    gpus: int  # declared devices


READ, WRITE = Work("read", spin_s=0.004), Work("write", spin_s=0.002)
SHAPES = (
    Shape(
        "fanout",
        "fan-out 1 to 100",
        (Work("cut", spin_s=0.02, fan_out=100), Work("model", sleep_s=0.04, gpus=1), WRITE),
        gpus=4,
    ),
    Shape(
        "bursty",
        "bursty input",
        (Work("read", spin_s=0.01, fan_out=40, burst=2), Work("model", sleep_s=0.05, gpus=0.5), WRITE),
        gpus=2,
    ),
    Shape(
        "fractions",
        "two accelerator stages share devices by fractions",
        (READ, Work("small", sleep_s=0.05, gpus=0.25), Work("large", sleep_s=0.05, gpus=0.5), WRITE),
        gpus=3,
    ),
    Shape(
        "fivefold",
        "a cost grows fivefold midway",
        (READ, Work("grows", sleep_s=0.06, gpus=1, grows_by=5.0), Work("steady", sleep_s=0.06, gpus=1), WRITE),
        gpus=6,
    ),
    Shape(
        "setup",
        "expensive setup",
        (READ, Work("dear", sleep_s=0.15, gpus=1, setup_s=20.0), Work("cheap", sleep_s=0.05, gpus=1), WRITE),
        gpus=4,
    ),
    Shape(
        "writer",
        "slow writer",
        (READ, Work("model", sleep_s=0.05, gpus=1), Work("write", sleep_s=0.1)),
        gpus=2,
    ),
)


def spin(seconds: float) -> None:
    """Keep a core busy for so much CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Step(ProcessingStage[Task, Task]):
    """One stage of a shape."""

    def __init__(self, place: int, work: Work, grown_from: int, log: str) -> None:
        self.name = work.name
        self.place = place
        self.work = work
        self.grown_from = grown_from
        self.log = log
        self.descriptor = -1
        self.resources = Resources(cpus=0.5, gpus=work.gpus)

    def setup(self, worker_metadata: Any = None) -> None:
        self.descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND)
        time.sleep(self.work.setup_s)

    def process(self, task: Task) -> list[Task]:
        started = time.monotonic()
        work = self.work
        spin(work.spin_s)
        if work.sleep_s:
            time.sleep(work.sleep_s * (work.grows_by if task.data >= self.grown_from else 1.0))
        ended = time.monotonic()
        os.write(self.descriptor, b"%d %.6f %d %.6f\n" % (self.place, ended, task.data, ended - started))
        count = work.fan_out if is_full(work, task.data) else 0
        return [task] if count == 1 else [Task(data=task.data) for _ in range(count)]

    def teardown(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def is_full(work: Work, number: int) -> bool:
    """Return True if an input leads to output: a fixed number of each block does, always the same ones."""
    if not work.burst:
        return True
    block, place = divmod(number, BURST_BLOCK)
    return place in Random(block).sample(range(BURST_BLOCK), work.burst)


def process_start_s() -> float:
    """When this process was started, on the clock of `time.monotonic`."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    since_start_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - since_start_s


def main(name: str, inputs: int, grown_from: int, log: str) -> None:
    """Run a shape; its log is left in `log`, what the driver took in `log`.driver."""
    shape = next(shape for shape in SHAPES if shape.name == name)
    Path(log).touch()
    stages = [Step(place, work, grown_from, log) for place, work in enumerate(shape.stages)]
    Pipeline(name, stages=stages).run(
        LocalExecutor(workers=WORKERS, gpus=shape.gpus),
        initial_tasks=[Task(data=number) for number in range(inputs)],
        progress="none",
        ledger=False,
    )
    usage = resource.getrusage(resource.RUSAGE_SELF)
    started_s = process_start_s()
    wall_s = time.monotonic() - started_s
    spent = {"cpu_s": usage.ru_utime + usage.ru_stime, "wall_s": wall_s, "started_s": started_s}
    Path(f"{log}.driver").write_text(json.dumps(spent))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
