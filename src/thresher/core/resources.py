# SPDX-License-Identifier: Apache-2.0
"""What a stage needs of the machine, and what a worker is told about the place where it landed."""

from __future__ import annotations

from dataclasses import dataclass, field

from thresher.errors import UsageError


@dataclass(frozen=True)
class Resources:
    """What one worker of a stage holds while it works (a dedicated one: while it lives)."""

    cpus: float = 1.0
    """CPU cores, fractions allowed. Soft: every stage gets a worker, even on one core."""
    gpus: float = 0.0
    """Accelerators: a fraction below 1 shares one, 1 and more are whole ones. Hard."""
    gpu_memory_gb: float = 0.0
    """Memory of a single accelerator; instead of `gpus`."""
    memory_gb: float = 0.0
    """Host memory that a worker needs for itself (a model, an index). Hard."""
    custom: dict[str, float] = field(default_factory=dict)
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
        """Whether a worker needs an accelerator."""
        return self.gpus > 0 or self.gpu_memory_gb > 0


@dataclass(frozen=True)
class NodeInfo:
    """The machine that `setup_on_node` runs on."""

    node_id: str = "local"
    """A name that is stable for the length of a run."""


@dataclass(frozen=True)
class WorkerMetadata:
    """The worker that `setup` runs in."""

    worker_id: str = "0"
    """A name that no other worker of the run ever has."""
    node: NodeInfo = NodeInfo()
    """Where it runs."""
    devices: tuple[int, ...] = ()
    """Indices of the accelerators that it may use."""
    rank: int = 0
    """Its place among the workers of its stage."""
    num_workers: int = 1
    """How many workers its stage has."""
