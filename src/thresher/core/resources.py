# SPDX-License-Identifier: Apache-2.0
"""Resources that a stage needs, and the node and worker information that its setup methods receive."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from thresher.errors import UsageError

STAGE_FILES = "stages"
"""Folder in a run folder for files of the stages themselves; a run that starts over leaves it there."""


@dataclass(frozen=True)
class Resources:
    """Resources that one worker of a stage holds during a call; a dedicated worker holds them until it exits."""

    cpus: float = 1.0
    """CPU cores; fractions are allowed. Soft limit: every stage gets a worker, even on one core."""
    gpu_memory_gb: float = 0.0
    """Memory of a single accelerator, as an alternative to `gpus`."""
    gpus: float = 0.0
    """Accelerators: a fraction below 1 shares one, values from 1 on are whole accelerators. Hard limit."""
    memory_gb: float = field(default=0.0, kw_only=True)
    """Host memory that a worker needs for itself (a model, an index). Hard limit."""
    custom: dict[str, float] = field(default_factory=dict, kw_only=True)
    """Named resources of a cluster."""

    def __post_init__(self) -> None:
        for name in ("cpus", "gpus", "gpu_memory_gb", "memory_gb"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise UsageError(f"Resources.{name}: {value!r} is not a number of 0 or more")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise UsageError(f"Resources.gpus: {self.gpus!r}; a fraction is legal below 1, whole numbers above")
        if self.gpus and self.gpu_memory_gb:
            raise UsageError("Resources: give gpus or gpu_memory_gb, not both")

    @property
    def requires_gpu(self) -> bool:
        """Return True if a worker needs an accelerator."""
        return self.gpus > 0 or self.gpu_memory_gb > 0


@dataclass(frozen=True)
class NodeInfo:
    """The machine that `setup_on_node` runs on."""

    node_id: str = "local"
    """Name of the node, stable during a run."""


@dataclass(frozen=True)
class WorkerMetadata:
    """The worker that `setup` runs in."""

    worker_id: str = "0"
    """Name of the worker, unique in the run."""
    node: NodeInfo = NodeInfo()
    """Node that the worker runs on."""
    devices: tuple[int, ...] = ()
    """Indices of the accelerators that the worker may use."""
    rank: int = 0
    """Index among the workers of the stage."""
    num_workers: int = 1
    """Number of workers of the stage."""
    threads: int = 1
    """Threads that the stage may run at a time in this worker, for decoders and model runtimes that take all cores
    unless they are told."""
    allocation: Any = None
    """Always `None`; for stages written for frameworks that tell here what their backend allotted."""
    run_dir: str | None = None
    """Run folder or URL; `None` without a ledger. Stages may keep files between attempts below its folder `stages`."""
    run_id: str = ""
    """Id of the run, the same in all attempts; empty outside of a run."""


def threads_for(cpus: float, cores: float, workers: int = 1) -> int:
    """Return the threads of one of `workers` on a node: what the stage requests, and no more than its part of the
    cores."""
    return max(1, min(int(cpus), int(cores / max(1, workers))))


def available_cpus() -> float:
    """Return the cores that this process may use: those of the machine, or the quota of its control group if that is
    less."""
    cores = float(len(os.sched_getaffinity(0)))
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else min(cores, int(quota) / int(period))
